// What this machine's cores and memory are, read from /proc and /sys.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/device_runtime.h"

namespace linkgauge {

// Cores that this process may be given (its cpuset, also when it is bound to fewer now), one hardware thread of each
// core first.
std::vector<int> usable_cores();

std::string processor_name();  // "AMD EPYC 9654 96-Core Processor", "Neoverse V2"
std::string machine_architecture();
int numa_node_of_core(int core);                  // -1: the machine does not say
std::vector<int> numa_nodes();                    // with memory; {0} where the machine does not say
std::size_t last_level_cache_bytes_of(int core);  // 0: the machine does not say
std::size_t memory_total_bytes();
MemoryInfo memory_now();  // what may be allocated now: the machine's available memory and every cgroup limit above us

// A whole file; empty where it cannot be read.
std::string text_of(const std::string& path);
// First line of a file, without the newline; empty where it cannot be read.
std::string first_line(const std::string& path);
// "0-3,8" as numbers.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace linkgauge
