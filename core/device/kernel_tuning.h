// Which copy kernel, grid and unrolling is fastest from here to there, found by measuring: what a thread must have
// under way differs between local memory, a link that is read and one that is written.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/device_runtime.h"

namespace linkgauge {

// Where a copy's bytes lie, seen from the device whose kernel moves them. -1: host memory; kMovingPages: managed memory
// whose pages go to who touches them, for which another kernel may be best.
inline constexpr int kMovingPages = -2;
struct CopyPath {
  int device = 0;
  int target_device = 0;
  int source_device = 0;
  int at_once = 1;  // such kernels on the device at once: each is to leave room for the others
};

struct CopyVariant {
  std::string kernel;  // of kernels.h; all take (target, source, bytes)
  LaunchShape shape;
};

// Every variant worth trying for a copy of `bytes` on a device; `blocks` above 0 fixes the grid. With `at_once` above 1
// only those of which so many fit on the device at once, where there are such. Never empty.
std::vector<CopyVariant> copy_variants(DeviceRuntime& runtime, int device, std::size_t bytes, int blocks,
                                       int at_once = 1);

// The time of one copy by that variant: the shortest of `repeats` intervals by device events, each over enough copies
// that the events' resolution is small. Overwrites the target. The device must be current.
double copy_time_ns(DeviceRuntime& runtime, int device, const CopyVariant& variant, void* target, const void* source,
                    std::size_t bytes, int repeats);

// The fastest variant for copies of about `bytes` along `path`, measured on these very buffers (target's contents are
// lost) the first time and remembered for the process: by device, peers, direction, magnitude, blocks and kernels
// at once. One thread
// measures at a time. Host devices have one variant, and nothing is measured.
CopyVariant fastest_copy(DeviceRuntime& runtime, const CopyPath& path, void* target, const void* source,
                         std::size_t bytes, int blocks);

}  // namespace linkgauge
