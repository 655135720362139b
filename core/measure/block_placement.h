// Which multiprocessor gets which block of a kernel, drawn anew between rounds of samples.
//
// A device hands out blocks from where the kernel before left off. On H200 a kernel of NCCL's shape always gets the
// same 24 multiprocessors, but in one of six orders, which stays until a kernel of more blocks than the device holds at
// once moves it; NCCL's rings of 1 GiB take up to 2 % longer in one order than in another (docs/results/h200.md). Left
// alone, every sample of a case has the order that some kernel before it happened to leave, and two launches differ by
// more than either's interval.
#pragma once

#include <cstdint>
#include <random>

#include "device/device_runtime.h"

namespace linkgauge {

class BlockPlacement {
 public:
  // Loads the kernel; makes a stream on `device`, the calling rank's own. Draws of one seed are the same.
  BlockPlacement(DeviceRuntime& runtime, int device, std::uint64_t seed);

  // Runs an empty kernel of a random number of blocks and waits for it, some 10 us. Not while a sample is timed.
  void draw();

 private:
  DeviceRuntime* runtime_;
  std::mt19937_64 random_;
  std::uniform_int_distribution<unsigned> blocks_;
  KernelHandle empty_;
  Stream stream_;
};

}  // namespace linkgauge
