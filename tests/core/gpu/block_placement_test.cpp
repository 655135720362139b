// Which cases have their kernels' blocks placed anew between samples, and how often.
#include "measure/block_placement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <ostream>
#include <string>

#include "case_maker.h"
#include "session.h"
#include "stand_in_control.h"

namespace linkgauge {
namespace {

struct Vendor {
  const char* which;
  const char* library;
  const char* launch;
};
std::ostream& operator<<(std::ostream& out, const Vendor& vendor) { return out << vendor.which; }

class BlockPlacementOn : public testing::TestWithParam<Vendor> {
 protected:
  BlockPlacementOn() : control_(GetParam().library) {}
  void SetUp() override {
    if (std::string(GetParam().which) == "hip" && !can_start_compiler()) {
      GTEST_SKIP() << "this machine cannot start linkgauge-hiprtc";
    }
    cache_ = std::filesystem::temp_directory_path() / ("linkgauge_placement_" + std::to_string(getpid()));
    control_.configure("devices=2");
    RuntimeRequest request;
    request.which = GetParam().which;
    request.kernel_cache = cache_.string();
    request.library_folders = {std::string(LINKGAUGE_STAND_IN_FOLDER) + "/nvrtc12"};
    runtime_ = open_runtime(request);
    runtime_->bind_thread(0);
  }
  void TearDown() override {
    runtime_.reset();
    control_.configure("");
    std::filesystem::remove_all(cache_);
  }
  int launches() const { return control_.calls(GetParam().launch); }

  // Kernels that both ranks of a case launch in all.
  int launches_of(CaseSpec spec, std::int64_t samples) const {
    spec.stop.kind = StopRuleKind::kCount;
    spec.stop.samples = samples;
    spec.stop.time_ns = 60'000'000'000;
    spec.warmup = 1;
    const int before = launches();
    on_threads(2, [&](Group& group) {
      SessionOptions options;
      options.runtime = runtime_;
      options.group = std::shared_ptr<Group>(std::shared_ptr<Group>(), &group);  // on_threads keeps it
      options.host_clock = {20, 1};
      Session session(options);
      const auto result = session.measure(spec);
      ASSERT_TRUE(result.has_value());
      EXPECT_TRUE(result->measurement.verified);
    });
    return launches() - before;
  }

  StandInControl control_;
  std::filesystem::path cache_;
  std::shared_ptr<DeviceRuntime> runtime_;
};

// A draw on either rank before each round. Of three samples the first is a round, and the others are one or, where they
// take 5 ms each, two.
TEST_P(BlockPlacementOn, IsDrawnBeforeEachRoundWhereOperationsAreKernels) {
  CaseSpec spec = case_of("kernel", Pattern::kUnidirectional, 2, 1000);
  spec.blocks = 1;
  (void)launches_of(spec, 1);  // compiles, and chooses the copy
  const int one = launches_of(spec, 1);
  const int more = launches_of(spec, 3) - one;
  EXPECT_TRUE(more == 2 + 2 || more == 2 + 4) << more;  // two operations, and the draws of the rounds
  spec.transport = "copy_engine";
  spec.blocks = 0;
  const int copies = launches_of(spec, 1);
  EXPECT_EQ(launches_of(spec, 3), copies);  // data are written and checked by kernels, and that is all
}

INSTANTIATE_TEST_SUITE_P(Vendors, BlockPlacementOn,
                         testing::Values(Vendor{"cuda", "libcuda.so.1", "cuLaunchKernel"},
                                         Vendor{"hip", "libamdhip64.so.7", "hipModuleLaunchKernel"}),
                         [](const auto& vendor) { return std::string(vendor.param.which); });

TEST(BlockPlacement, TransportsSayWhetherEachOperationBeginsAKernel) {
  CaseSpec spec;
  for (const char* name : {"staging", "copy_engine", "mpi"}) EXPECT_FALSE(make_transport(name)->begins_kernels(spec));
  for (const char* name : {"kernel", "ccl"}) EXPECT_TRUE(make_transport(name)->begins_kernels(spec));
  spec.variant = "push+resident";
  EXPECT_FALSE(make_transport("kernel")->begins_kernels(spec));
}

}  // namespace
}  // namespace linkgauge
