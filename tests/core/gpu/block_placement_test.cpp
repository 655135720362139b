// Which cases have their kernels' blocks placed anew between rounds of samples, and how often.
#include <gtest/gtest.h>

#include <string>

#include "case_maker.h"
#include "on_vendors.h"
#include "with_sessions.h"

namespace linkgauge {
namespace {

struct Launching : Vendor {
  const char* launch;
};

class BlockPlacementOn : public OnVendors<Launching> {
 protected:
  void SetUp() override {
    OnVendors::SetUp();
    if (!IsSkipped()) runtime_ = open("devices=2");
  }
  void TearDown() override {
    runtime_.reset();
    OnVendors::TearDown();
  }

  // Kernels that both ranks of a case launch in all.
  int launches_of(CaseSpec spec, std::int64_t samples) const {
    spec.timing.stop.kind = StopRuleKind::kCount;
    spec.timing.stop.samples = samples;
    spec.timing.stop.time_ns = 60'000'000'000;
    spec.timing.warmup = 1;
    const int before = control_.calls(GetParam().launch);
    with_sessions(runtime_, 2, [&](Session& session, Group&) {
      const auto result = session.measure(spec);
      ASSERT_TRUE(result.has_value());
      EXPECT_TRUE(result->measurement.verified);
    });
    return control_.calls(GetParam().launch) - before;
  }

  std::shared_ptr<DeviceRuntime> runtime_;
};

// A draw on either rank before each round. Of three samples the first is a round, and the others are one or, where they
// take 5 ms each, two.
TEST_P(BlockPlacementOn, IsDrawnBeforeEachRoundWhereOperationsAreKernels) {
  CaseSpec spec = case_of("kernel", Pattern::kAllreduce, 2, 1000);
  spec.mechanism.algorithm = "one_shot";
  spec.mechanism.variant = "pull+host_barrier";  // tries nothing out
  spec.mechanism.blocks = 1;
  (void)launches_of(spec, 1);  // compiles
  const int one = launches_of(spec, 1);
  const int more = launches_of(spec, 3) - one;
  EXPECT_TRUE(more == 4 + 2 || more == 4 + 4) << more;  // two operations of two ranks, and the draws of the rounds
  spec = case_of("copy_engine", Pattern::kUnidirectional, 2, 1000);
  const int copies = launches_of(spec, 1);
  EXPECT_EQ(launches_of(spec, 3), copies);  // data are written and checked by kernels, and that is all
}

INSTANTIATE_TEST_SUITE_P(Vendors, BlockPlacementOn,
                         testing::Values(Launching{{"cuda", "libcuda.so.1"}, "cuLaunchKernel"},
                                         Launching{{"hip", "libamdhip64.so.7"}, "hipModuleLaunchKernel"}),
                         [](const auto& vendor) { return std::string(vendor.param.which); });

TEST(BlockPlacement, TransportsSayWhetherEachOperationBeginsAKernel) {
  CaseSpec spec;
  for (const char* name : {"staging", "copy_engine", "mpi"})
    EXPECT_FALSE(make_transport(name)->begins_kernels(spec.mechanism));
  for (const char* name : {"kernel", "ccl"}) EXPECT_TRUE(make_transport(name)->begins_kernels(spec.mechanism));
  spec.mechanism.variant = "push+resident";
  EXPECT_FALSE(make_transport("kernel")->begins_kernels(spec.mechanism));
}

}  // namespace
}  // namespace linkgauge
