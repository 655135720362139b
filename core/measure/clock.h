// The host clock: the node's steady clock, which ranks of one node share.
#pragma once

#include <chrono>
#include <cstdint>

#include "device/device_runtime.h"

namespace linkgauge {

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct ClockFacts {
  double cost_ns = 0;        // of one read: median of back-to-back reads
  double resolution_ns = 0;  // smallest step above 0 that was seen
};
ClockFacts measure_host_clock();
// Of the runtime's events on `device`: two recorded back to back. Cost is that of queuing one.
ClockFacts measure_event_clock(DeviceRuntime& runtime, int device);

}  // namespace linkgauge
