// Which cases have their kernels' blocks placed anew between samples, and how often.
#include "measure/block_placement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <ostream>
#include <string>
#include <thread>

#include "case_maker.h"
#include "measure/clock.h"
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

TEST_P(BlockPlacementOn, DrawsAtMostOnceInTenMilliseconds) {
  constexpr std::int64_t kEveryNs = 10'000'000;
  const std::int64_t begin = now_ns();
  BlockPlacement placement(*runtime_, 0, 7);
  const int before = launches();
  placement.draw_if_due();
  EXPECT_EQ(launches() - before, 1);
  for (int i = 0; i < 100; ++i) placement.draw_if_due();
  EXPECT_LE(launches() - before, 1 + (now_ns() - begin) / kEveryNs);
  const int drawn = launches();
  std::this_thread::sleep_for(std::chrono::nanoseconds(kEveryNs));
  placement.draw_if_due();
  EXPECT_EQ(launches(), drawn + 1);
}

TEST_P(BlockPlacementOn, OnlyWhereOperationsAreKernelsAndRanksStartTogether) {
  CaseSpec spec = case_of("kernel", Pattern::kUnidirectional, 2, 1000);
  spec.blocks = 1;
  (void)launches_of(spec, 3);  // compiles, and chooses the copy
  spec.arrival = Arrival::kFree;
  const int without = launches_of(spec, 3);
  spec.arrival = Arrival::kDeadline;
  EXPECT_GE(launches_of(spec, 3), without + 2);  // one a rank at least
  spec.transport = "copy_engine";
  spec.blocks = 0;
  const int copies = launches_of(spec, 3);
  EXPECT_EQ(launches_of(spec, 6), copies);  // data are written and checked by kernels, and that is all
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
