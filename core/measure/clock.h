// What the clocks resolve, and what a look at them costs.
#pragma once

#include "device/device_runtime.h"
#include "now.h"

namespace linkgauge {

struct ClockFacts {
  double cost_ns = 0;        // of one read: median of back-to-back reads
  double resolution_ns = 0;  // smallest step above 0 that was seen
};
ClockFacts measure_host_clock();
// Of the runtime's events on `device`: two recorded back to back. Cost is that of queuing one.
ClockFacts measure_event_clock(DeviceRuntime& runtime, int device);

}  // namespace linkgauge
