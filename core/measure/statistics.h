// The statistics that decide when to stop, and that judge afterwards by the same rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace linkgauge {

// Number of leading values that are warm-up, at most half of the series.
std::size_t warmup_cut(std::span<const double> series);

// Effective number of independent values: n over the integrated autocorrelation time, between 1 and n.
double effective_size(std::span<const double> series);

struct Interval {
  double low = 0;
  double high = 0;
};

// Distribution-free 95 % interval of the median, widened for autocorrelation, never narrower than `tick`.
// Fewer than 6 effective values: (min, max).
Interval median_interval(std::span<const double> series, double tick);

double median(std::span<const double> series);

}  // namespace linkgauge
