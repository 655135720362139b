#include "device/host_pages.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <sstream>
#include <utility>

#include "device/host_cpu.h"
#include "device/host_placement.h"

namespace linkgauge {
namespace {

thread_local HostPages account;

std::uintptr_t huge_page_bytes() {
  std::uintptr_t bytes = 0;
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  return file >> bytes && bytes > 0 ? bytes : std::uintptr_t{2} << 20;
}

}  // namespace

std::int64_t huge_bytes_in(const std::string& smaps, std::uintptr_t begin, std::size_t bytes) {
  const std::uintptr_t end = begin + bytes;
  std::istringstream lines(smaps);
  std::string line;
  std::int64_t found = 0;
  std::int64_t inside = 0;  // bytes of the mapping at hand that lie within
  std::int64_t huge = 0;
  const auto close = [&] {
    found += std::min(huge, inside);
    huge = 0;
  };
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    const std::size_t dash = word.find('-');
    if (dash != std::string::npos && word.find_first_not_of("0123456789abcdef-") == std::string::npos) {
      close();
      const std::uintptr_t first = std::stoull(word.substr(0, dash), nullptr, 16);
      const std::uintptr_t last = std::stoull(word.substr(dash + 1), nullptr, 16);
      const std::uintptr_t low = std::max(first, begin);
      const std::uintptr_t high = std::min(last, end);
      inside = high > low ? static_cast<std::int64_t>(high - low) : 0;
    } else if (word == "AnonHugePages:" || word == "ShmemPmdMapped:" || word == "FilePmdMapped:") {
      std::int64_t kib = 0;
      if (words >> kib) huge += kib * 1024;
    }
  }
  close();
  return found;
}

std::int64_t node_bytes_in(const std::string& numa_maps, std::uintptr_t begin, int node, std::size_t page_bytes) {
  const std::string name = std::string("N").append(std::to_string(node)).append("=");
  std::istringstream lines(numa_maps);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word.empty() || word.find_first_not_of("0123456789abcdef") != std::string::npos) continue;
    if (std::stoull(word, nullptr, 16) != begin) continue;
    std::int64_t pages = 0;
    std::int64_t kib = static_cast<std::int64_t>(page_bytes / 1024);
    while (words >> word) {
      if (word.rfind(name, 0) == 0) pages = std::stoll(word.substr(name.size()));
      if (word.rfind("kernelpagesize_kB=", 0) == 0) kib = std::stoll(word.substr(18));
    }
    return pages * kib * 1024;
  }
  return -1;
}

void account_pages(const void* memory, std::size_t bytes, int numa_node, bool huge_pages) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  try {
    if (huge_pages) {
      const std::uintptr_t page = huge_page_bytes();
      const std::uintptr_t first = (begin + page - 1) / page * page;
      const std::uintptr_t last = (begin + bytes) / page * page;
      if (last > first) {
        account.huge_requested += static_cast<std::int64_t>(last - first);
        account.huge_given += huge_bytes_in(text_of("/proc/self/smaps"), first, last - first);
      }
    }
    if (numa_node >= 0) {
      const std::int64_t given = node_bytes_in(text_of("/proc/self/numa_maps"), begin, numa_node, page_bytes());
      if (given < 0) return;
      account.node_requested[numa_node] += static_cast<std::int64_t>(bytes);
      account.node_given[numa_node] += std::min(given, static_cast<std::int64_t>(bytes));
    }
  } catch (const std::exception&) {  // what is not known stays unknown; the buffer is as good as before
  }
}

HostPages take_host_pages() { return std::exchange(account, {}); }

}  // namespace linkgauge
