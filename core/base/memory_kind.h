// Kinds of memory, and how it is asked for.
#pragma once

#include <cstdint>

#include "base/words.h"

namespace linkgauge {

enum class MemoryKind : std::uint8_t { kDevice, kPinned, kPageable, kManaged };
template <>
inline constexpr auto kNames<MemoryKind> = names("memory kind", "device", "pinned", "pageable", "managed");

// How managed memory is used: what the driver is told of it, and what moves its pages (docs/definitions.md, Managed
// memory).
enum class ManagedUse : std::uint8_t {
  kDefault,   // nothing is said: the driver's and the environment's choice
  kMigrate,   // as kDefault, where pages move to who touches them
  kZeroCopy,  // pages stay in host memory, and the device reaches them there
  kPrefetch,  // pages are moved by a call before they are touched
  kPreferredDevice,
  kPreferredHost,
  kAccessedBy,
  kReadMostly,
};

template <>
inline constexpr auto kNames<ManagedUse> = names("use of managed memory", "default", "migrate", "zero_copy", "prefetch",
                                                 "preferred_device", "preferred_host", "accessed_by", "read_mostly");

// What distinguishes allocations of one kind (docs/definitions.md: memory kinds and nodes).
struct AllocateOptions {
  int numa_node = -1;           // host memory: place on this node; -1: nearest to the device
  bool write_combined = false;  // pinned: write-combined (CUDA) or non-coherent (HIP)
  bool huge_pages = false;      // host memory: transparent huge pages asked for
  bool fabric_handle = false;   // device memory: share() gives a handle that other nodes of an NVLink domain open too
};

}  // namespace linkgauge
