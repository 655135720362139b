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
};

struct CopyVariant {
  std::string kernel;  // of kernels.h
  LaunchShape shape;
  bool operator==(const CopyVariant&) const = default;
};

// Whether fastest_copy and fastest_both_ways measure: host devices have one variant.
inline bool kernels_are_tried(const DeviceRuntime& runtime) { return runtime.kind() != RuntimeKind::kHost; }

// Every variant worth trying for a copy of `bytes` on a device, first the one that is taken where times do not tell
// (kKernelCopy, 512 threads, 4 blocks a multiprocessor); `blocks` above 0 fixes the grid. Never empty.
std::vector<CopyVariant> copy_variants(DeviceRuntime& runtime, int device, std::size_t bytes, int blocks);

// The time of one copy by that variant: the shortest of `repeats` intervals by device events, each over enough copies
// that the events' resolution is small. Overwrites the target. The device must be current.
double copy_time_ns(DeviceRuntime& runtime, int device, const CopyVariant& variant, void* target, const void* source,
                    std::size_t bytes, int repeats);

// The fastest variant for copies of about `bytes` along `path`, measured on these very buffers (target's contents are
// lost), as choose_by_times() says. It is remembered for the process, by device, peers, direction, magnitude and
// blocks, once it was told clearly or two measurements in a row agreed; until then every call measures, for up to
// half a second. One thread measures at a time; ranks that are processes see to that themselves (by_turns).
CopyVariant fastest_copy(DeviceRuntime& runtime, const CopyPath& path, void* target, const void* source,
                         std::size_t bytes, int blocks);

// Two copies of one length at once, there and back.
struct BothWays {
  void* target;
  const void* source;
  void* target_back;
  const void* source_back;
};
// The fastest kernel for both at once, in the same way; its grid's warps take either by turns. Two kernels side by side
// share the device as chance has it: between H200 and host memory they gave 24 to 82 GB/s in sum, by their grids, where
// this gives 84.
CopyVariant fastest_both_ways(DeviceRuntime& runtime, int device, const BothWays& ways, std::size_t bytes, int blocks);

}  // namespace linkgauge
