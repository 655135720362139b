#include "device/host_placement.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/errors.h"
#include "device/host_pages.h"

namespace linkgauge {
namespace {

// linux/mempolicy.h, whose header is not on every machine that builds.
constexpr int kPreferred = 1;
constexpr int kBind = 2;
constexpr std::size_t kMostNodes = 1024;
constexpr std::size_t kBitsPerWord = 8 * sizeof(unsigned long);
using NodeMask = std::array<unsigned long, kMostNodes / kBitsPerWord>;

NodeMask mask_of(int node) {
  NodeMask mask{};
  const auto index = static_cast<std::size_t>(node);
  mask[index / kBitsPerWord] = 1UL << (index % kBitsPerWord);
  return mask;
}

}  // namespace

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::size_t whole_pages(std::size_t bytes) {
  const std::size_t page = page_bytes();
  return (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
}

int place_on_node(void* memory, std::size_t bytes, int numa_node, bool only) {
  const NodeMask mask = mask_of(numa_node);
  // The kernel takes one bit less than it is given.
  return syscall(SYS_mbind, memory, bytes, only ? kBind : kPreferred, mask.data(), kMostNodes + 1, 0U) == 0 ? 0 : errno;
}

void* map_host_memory(std::size_t bytes, int numa_node, bool huge_pages) {
  const std::string what = std::to_string(bytes) + " bytes of host memory";
  if (numa_node >= static_cast<int>(kMostNodes) || numa_node < -1)
    throw MemoryError(what + ": NUMA node " + std::to_string(numa_node) + " does not exist");
  const std::size_t length = whole_pages(bytes);
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw MemoryError(what + ": mmap failed: " + std::strerror(errno));
  if (numa_node >= 0) {
    if (const int error = place_on_node(memory, length, numa_node, true); error != 0) {
      munmap(memory, length);
      throw MemoryError(what + ": mbind to NUMA node " + std::to_string(numa_node) +
                        " failed: " + std::strerror(error));
    }
  }
  // Only a request: the kernel may have none to give, and the case then measures what it got.
  if (huge_pages) (void)madvise(memory, length, MADV_HUGEPAGE);
  auto* first = static_cast<volatile char*>(memory);
  for (std::size_t offset = 0; offset < length; offset += page_bytes()) first[offset] = 0;
  account_pages(memory, length, numa_node, huge_pages);
  return memory;
}

void unmap_host_memory(void* memory, std::size_t bytes) noexcept { (void)munmap(memory, whole_pages(bytes)); }

PreferNode::PreferNode(int numa_node) {
  if (numa_node < 0 || numa_node >= static_cast<int>(kMostNodes)) return;
  const NodeMask mask = mask_of(numa_node);
  static_assert(sizeof(previous_mask_) == sizeof(NodeMask));
  if (syscall(SYS_get_mempolicy, &previous_mode_, previous_mask_.data(), kMostNodes, nullptr, 0UL) != 0) return;
  active_ = syscall(SYS_set_mempolicy, kPreferred, mask.data(), kMostNodes) == 0;
}

PreferNode::~PreferNode() {
  if (!active_) return;
  const bool has_nodes = previous_mode_ != 0;  // the default policy takes none
  (void)syscall(SYS_set_mempolicy, previous_mode_, has_nodes ? previous_mask_.data() : nullptr,
                has_nodes ? kMostNodes : 0UL);
}

int numa_node_count() {
  int count = 0;
  while (access(("/sys/devices/system/node/node" + std::to_string(count)).c_str(), F_OK) == 0) ++count;
  return std::max(count, 1);
}

int numa_node_of_pci(const std::string& pci_address) {
  std::string address = pci_address;
  std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return std::tolower(c); });
  std::ifstream file("/sys/bus/pci/devices/" + address + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

}  // namespace linkgauge
