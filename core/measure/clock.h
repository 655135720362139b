// What the clocks resolve, and what a look at them costs.
#pragma once

#include <cstdint>
#include <span>

#include "base/now.h"
#include "device/device_runtime.h"

namespace linkgauge {

struct ClockFacts {
  double cost_ns = 0;        // of one read: median of back-to-back reads
  double resolution_ns = 0;  // its counter's period; 1 where that is below a whole nanosecond or close to it
};

// The period of the counter behind readings in whole nanoseconds, which rise: the longest of which all are multiples,
// but for a phase and what rounding to whole nanoseconds takes away. 1 where no period above 2.1 ns explains them.
// The first 100 count. How far apart they are has to vary.
double period_of(std::span<const std::int64_t> readings);

ClockFacts measure_host_clock();
// Of the runtime's events on `device`: two recorded back to back. Cost is that of queuing one.
ClockFacts measure_event_clock(DeviceRuntime& runtime, int device);

}  // namespace linkgauge
