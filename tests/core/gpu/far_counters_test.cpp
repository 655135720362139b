// Counters between nodes of one NVLink domain, on a stand-in for the driver.
#include "transport/memory/far_counters.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "case_maker.h"
#include "device/device_runtime.h"
#include "stand_in_control.h"
#include "two_nodes.h"

namespace linkgauge {
namespace {

// What a rank tells lies within what is timed: it must not wait for the copy. A thousand are more than are under way.
TEST(FarCounters, TellWithoutWaitingAndInOrder) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  const StandInControl cuda("libcuda.so.1");
  cuda.configure("devices=2");
  RuntimeRequest request;
  request.which = "cuda";
  request.library_folders = {std::string(LINKGAUGE_STAND_IN_FOLDER) + "/nvrtc12"};
  const std::shared_ptr<DeviceRuntime> runtime = open_runtime(request);
  const CaseSpec spec = case_of("copy_engine", Pattern::kUnidirectional, 2, 64);
  on_threads(2, [&](Group& real) {
    TwoNodes group(real, true);
    const RankContext context = context_of(*runtime, group, spec);
    const std::vector<std::unique_ptr<Counters>> counters = connect_far_counters(context, {{0, 1}});
    ASSERT_EQ(counters.size(), 1U);
    real.barrier({});
    const int before = cuda.calls("cuMemcpy");
    const int waits = cuda.calls("cuStreamSynchronize");
    real.barrier({});
    constexpr std::uint64_t kMessages = 1000;
    if (real.rank() == 0) {
      for (std::uint64_t told = 1; told <= kMessages; ++told) counters[0]->tell(told);
      EXPECT_EQ(cuda.calls("cuMemcpy"), before) << "such a copy is waited for";
      EXPECT_LE(cuda.calls("cuStreamSynchronize"), waits + 2) << "where words are used again";
    }
    real.barrier({});
    if (real.rank() == 1) {
      for (std::uint64_t due = 1; due <= kMessages; due += 333) counters[0]->await(due);
      counters[0]->tell(7);  // and the other way
    } else {
      counters[0]->await(7);
    }
    real.barrier({});
  });
}

}  // namespace
}  // namespace linkgauge
