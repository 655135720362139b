// Host memory on a chosen NUMA node, without libnuma: anonymous mappings and the kernel's memory policies.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "base/not_copied.h"

namespace linkgauge {

std::size_t page_bytes();  // of the smallest pages

// Bytes of whole pages that hold so many, at least one.
std::size_t whole_pages(std::size_t bytes);

// Where the first touch is to place the pages: on `numa_node` only, or there where it can. Returns errno, 0 for
// success.
int place_on_node(void* memory, std::size_t bytes, int numa_node, bool only);

// Pages are bound to `numa_node` (-1: wherever they fall), asked to be huge if so told, and touched, so that no fault
// falls into a timed region. Throws MemoryError naming the call that failed.
void* map_host_memory(std::size_t bytes, int numa_node, bool huge_pages);
void unmap_host_memory(void* memory, std::size_t bytes) noexcept;

// While it lives, pages that this thread makes appear preferably on `numa_node`; -1: no change. What a driver
// allocates on the thread's behalf follows it too.
class PreferNode : NotCopied {
 public:
  explicit PreferNode(int numa_node);
  ~PreferNode();

 private:
  bool active_ = false;
  int previous_mode_ = 0;
  std::array<unsigned long, 16> previous_mask_{};
};

// Number of NUMA nodes that are online; 1 where the kernel does not tell.
int numa_node_count();
// The node of the PCI device at that address ("0000:1b:00.0"); -1: unknown.
int numa_node_of_pci(const std::string& pci_address);

}  // namespace linkgauge
