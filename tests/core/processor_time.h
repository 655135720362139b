// What a thread works itself, whoever else runs.
#pragma once

#include <cstdint>
#include <ctime>

#include "base/now.h"

namespace linkgauge {

inline std::int64_t cpu_ns_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace linkgauge
