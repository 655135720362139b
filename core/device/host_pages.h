// Which pages the kernel gave a thread's host buffers that requested huge ones, or those of a NUMA node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace linkgauge {

struct HostPages {
  std::int64_t huge_requested = 0;  // bytes of buffers that requested huge pages, as far as whole ones fit
  std::int64_t huge_given = 0;
  std::map<int, std::int64_t> node_requested;  // by NUMA node, in bytes
  std::map<int, std::int64_t> node_given;      // absent where the kernel lists no nodes
};

// Takes a mapping whose pages have been touched into this thread's account. `numa_node`: -1 where none was requested.
// Reads /proc/self/smaps or numa_maps, some ten milliseconds in a process with a GPU's mappings: only what requested
// something pays.
void account_pages(const void* memory, std::size_t bytes, int numa_node, bool huge_pages) noexcept;

// This thread's account since the last call.
HostPages take_host_pages();

// Bytes of huge pages within [begin, begin + bytes) by the text of /proc/PID/smaps. Of a mapping that reaches beyond,
// at most the part within counts: the kernel joins neighbors.
std::int64_t huge_bytes_in(const std::string& smaps, std::uintptr_t begin, std::size_t bytes);
// Bytes on `node` of the mapping that begins at `begin`, by the text of /proc/PID/numa_maps; -1: it is not listed.
std::int64_t node_bytes_in(const std::string& numa_maps, std::uintptr_t begin, int node, std::size_t page_bytes);

}  // namespace linkgauge
