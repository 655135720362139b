#include "measure/block_placement.h"

#include "kernels/kernels.h"

namespace linkgauge {
namespace {

constexpr unsigned kDrawThreads = 256;
// Eight such blocks fill a multiprocessor; twice as many leave the next block's place to which of them end first.
constexpr unsigned kDrawBlocksPerMultiprocessor = 16;

}  // namespace

BlockPlacement::BlockPlacement(DeviceRuntime& runtime, int device, std::uint64_t seed)
    : runtime_(&runtime),
      random_(seed),
      blocks_(1, kDrawBlocksPerMultiprocessor * runtime.multiprocessors(device)),
      empty_(runtime.kernel(device, kKernelEmpty)),
      stream_(runtime, device) {}

void BlockPlacement::draw() {
  runtime_->launch(empty_, {blocks_(random_), kDrawThreads, 0}, nullptr, stream_.handle());
  stream_.synchronize();
}

}  // namespace linkgauge
