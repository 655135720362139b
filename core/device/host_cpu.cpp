#include "device/host_cpu.h"

#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/joined_threads.h"

namespace linkgauge {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKiB = 1024;

std::string cpu_folder(int core) { return "/sys/devices/system/cpu/cpu" + std::to_string(core); }

// The kernel cuts a thread's affinity down to its cpuset, so a thread that asks for every core learns the cpuset,
// whatever the process is bound to now.
std::vector<int> cpuset_cores() {
  std::vector<int> cores;
  JoinedThreads asking;
  asking.start([&cores] {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  });
  asking.join();
  if (cores.empty()) cores.push_back(0);
  return cores;
}

// Value of a "Name:   123 kB" line, in bytes. Without /proc what sysinfo(2) says is free, or all there is: the free
// memory leaves the caches out, and so is less than what can be had.
std::size_t meminfo_bytes(std::string_view key) {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) == 0 && line.size() > key.size() && line[key.size()] == ':') {
      return std::stoull(line.substr(key.size() + 1)) * kKiB;
    }
  }
  struct sysinfo known {};
  if (sysinfo(&known) != 0) return 0;
  return static_cast<std::size_t>(key == "MemTotal" ? known.totalram : known.freeram) * known.mem_unit;
}

// A file with one number; `missing` where it is absent or says "max".
std::uint64_t number_in(const fs::path& path, std::uint64_t missing) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : missing;
}

std::uint64_t stat_value(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

struct CgroupFiles {
  fs::path root;
  std::string limit;
  std::string usage;
  std::string reclaimable;  // key of memory.stat
};

// Lowers `info` to what the cgroup at `relative` and those above it leave.
void apply_cgroup(const CgroupFiles& files, const std::string& relative, MemoryInfo& info) {
  fs::path folder = files.root / fs::path(relative).relative_path();
  while (true) {
    const std::uint64_t limit = number_in(folder / files.limit, UINT64_MAX);
    if (limit < UINT64_MAX / 4) {  // v1 says "none" with a number near 2^63
      const std::uint64_t used = number_in(folder / files.usage, 0);
      const std::uint64_t cache = std::min(used, stat_value(folder / "memory.stat", files.reclaimable));
      const std::uint64_t held = used - cache;
      info.total_bytes = std::min<std::size_t>(info.total_bytes, limit);
      info.free_bytes = std::min<std::size_t>(info.free_bytes, limit > held ? limit - held : 0);
    }
    if (folder == files.root || !folder.has_parent_path() || folder == folder.parent_path()) return;
    folder = folder.parent_path();
  }
}

struct ArmPart {
  unsigned implementer;
  unsigned part;
  const char* name;
};
// Arm's and its licensees' main ID register numbers for the server cores in use.
constexpr std::array<ArmPart, 12> kArmParts{{{0x41, 0xd0c, "Neoverse N1"},
                                             {0x41, 0xd40, "Neoverse V1"},
                                             {0x41, 0xd49, "Neoverse N2"},
                                             {0x41, 0xd4f, "Neoverse V2"},
                                             {0x41, 0xd84, "Neoverse V3"},
                                             {0x41, 0xd8e, "Neoverse N3"},
                                             {0x41, 0xd08, "Cortex-A72"},
                                             {0x41, 0xd0b, "Cortex-A76"},
                                             {0x46, 0x001, "A64FX"},
                                             {0x48, 0xd01, "Kunpeng 920"},
                                             {0x43, 0x0af, "ThunderX2"},
                                             {0xc0, 0xac3, "Ampere-1"}}};

}  // namespace

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> numbers;
  std::stringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    if (part.empty() || part.find_first_not_of("0123456789-") != std::string::npos) continue;
    const std::size_t dash = part.find('-');
    const int low = std::stoi(part);
    const int high = dash == std::string::npos ? low : std::stoi(part.substr(dash + 1));
    for (int number = low; number <= high; ++number) numbers.push_back(number);
  }
  return numbers;
}

std::vector<int> usable_cores() {
  std::vector<int> cores = cpuset_cores();
  std::stable_partition(cores.begin(), cores.end(), [](int core) {
    const std::vector<int> siblings = parse_cpu_list(first_line(cpu_folder(core) + "/topology/thread_siblings_list"));
    return siblings.empty() || siblings.front() == core;  // the first thread of its core
  });
  return cores;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  unsigned implementer = 0;
  unsigned part = 0;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string value = colon + 2 <= line.size() ? line.substr(colon + 2) : std::string();
    if (line.rfind("model name", 0) == 0 && !value.empty()) return value;
    if (line.rfind("CPU implementer", 0) == 0) implementer = static_cast<unsigned>(std::stoul(value, nullptr, 16));
    if (line.rfind("CPU part", 0) == 0) {
      part = static_cast<unsigned>(std::stoul(value, nullptr, 16));
      break;
    }
  }
  for (const ArmPart& known : kArmParts) {
    if (known.implementer == implementer && known.part == part) return known.name;
  }
  if (implementer != 0) {
    std::ostringstream name;
    name << "Arm core 0x" << std::hex << implementer << ":0x" << part;
    return name.str();
  }
  return machine_architecture() + " processor";
}

std::string machine_architecture() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "unknown";
}

int numa_node_of_core(int core) {
  for (const int node : parse_cpu_list(first_line("/sys/devices/system/node/online"))) {
    std::error_code ignored;
    if (fs::exists(cpu_folder(core) + "/node" + std::to_string(node), ignored)) return node;
  }
  return -1;
}

std::vector<int> numa_nodes() {
  std::vector<int> nodes = parse_cpu_list(first_line("/sys/devices/system/node/has_memory"));
  if (nodes.empty()) nodes.push_back(0);
  return nodes;
}

std::size_t last_level_cache_bytes_of(int core) {
  std::size_t bytes = 0;
  int best_level = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = cpu_folder(core) + "/cache/index" + std::to_string(index);
    const std::string level = first_line(folder + "/level");
    const std::string size = first_line(folder + "/size");  // "32768K"
    if (level.empty() || size.empty() || first_line(folder + "/type") == "Instruction") continue;
    if (std::stoi(level) <= best_level) continue;
    best_level = std::stoi(level);
    const std::size_t unit = size.back() == 'K' ? kKiB : size.back() == 'M' ? kKiB * kKiB : 1;
    bytes = std::stoull(size) * unit;
  }
  if (bytes != 0) return bytes;
  for (const int name : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    const long value = sysconf(name);
    if (value > 0) return static_cast<std::size_t>(value);
  }
  return 0;
}

std::size_t memory_total_bytes() { return meminfo_bytes("MemTotal"); }

MemoryInfo memory_now() {
  MemoryInfo info{meminfo_bytes("MemAvailable"), memory_total_bytes()};
  const CgroupFiles unified{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
  const CgroupFiles unified_beside_v1{"/sys/fs/cgroup/unified", "memory.max", "memory.current", "inactive_file"};
  const CgroupFiles v1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                       "total_inactive_file"};
  std::ifstream file("/proc/self/cgroup");  // "0::/path" or "4:memory:/path"
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string relative = line.substr(second + 1);
    if (controllers.empty()) {
      apply_cgroup(unified, relative, info);
      apply_cgroup(unified_beside_v1, relative, info);
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      apply_cgroup(v1, relative, info);
    }
  }
  return info;
}

}  // namespace linkgauge
