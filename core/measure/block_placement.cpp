#include "measure/block_placement.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "measure/clock.h"

namespace linkgauge {
namespace {

constexpr std::int64_t kDrawEveryNs = 10'000'000;
constexpr unsigned kThreads = 256;
// Eight such blocks fill a multiprocessor; twice as many leave the next block's place to which of them end first.
constexpr unsigned kMostBlocksPerMultiprocessor = 16;

}  // namespace

BlockPlacement::BlockPlacement(DeviceRuntime& runtime, int device, std::uint64_t seed)
    : runtime_(&runtime),
      random_(seed),
      blocks_(1, kMostBlocksPerMultiprocessor *
                     static_cast<unsigned>(std::max(1, runtime.describe(device).multiprocessors))),
      empty_(runtime.kernel(device, kKernelEmpty)),
      stream_(runtime, device) {}

void BlockPlacement::draw_if_due() {
  const std::int64_t now = now_ns();
  if (last_ns_ != 0 && now - last_ns_ < kDrawEveryNs) return;
  last_ns_ = now;
  runtime_->launch(empty_, {blocks_(random_), kThreads, 0}, nullptr, stream_.handle());
  stream_.synchronize();
}

}  // namespace linkgauge
