// The host clock: the node's steady clock, which ranks of one node share.
#pragma once

#include <chrono>
#include <cstdint>

namespace linkgauge {

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace linkgauge
