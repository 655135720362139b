// The statistics that decide when to stop, and that judge afterwards by the same rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace linkgauge {

// Number of leading values that are warm-up, at most half of the series. The cut that makes the standard error of the
// mean of what is left smallest (MSER: White, Simulation 69(6), 1997), over values clipped to far fences of the
// second half, and only where it halves the squared error (a quarter at 30
// values): noise alone is no warm-up.
std::size_t warmup_cut(std::span<const double> series);

// Effective number of independent values for the median: n over the integrated autocorrelation time of the indicator
// "above the median", between 1 and n. The largest of three estimates of that time, so rather too few than too many:
// the initial monotone sequence (Geyer, Statistical Science 7(4), 1992), and two first-order models of the lag-1
// correlation, corrected for its bias and raised by one standard error. It cannot see modes that last longer than the
// series.
double effective_size(std::span<const double> series);

struct Interval {
  double low = 0;
  double high = 0;
};

// Distribution-free 95 % interval of the median: order statistics by the binomial distribution of the effective number
// of values; never narrower than `tick`. Fewer than 6 effective values cannot give 95 %: then (min, max), and beyond
// each end up to half of the range, the fewer the more. An empty series gives (nan, nan).
Interval median_interval(std::span<const double> series, double tick);

double median(std::span<const double> series);  // nan for an empty series

// What is said of one series (docs/definitions.md, statistics). Everything but count_all is of what follows the cut.
struct Summary {
  std::int64_t count_all = 0;
  std::int64_t warmup_cut = 0;
  std::int64_t count = 0;
  double median = 0;
  Interval interval;
  double mean = 0;
  double quartile_1 = 0;
  double quartile_3 = 0;
  double p5 = 0;
  double p95 = 0;
  double p99 = 0;
  double min = 0;
  double max = 0;
  double effective_size = 0;
};
// Quantiles interpolate linearly between order statistics (Hyndman and Fan's type 7, numpy's default).
Summary summarize(std::span<const double> series, double tick);

// One series a group, values offsets[g] to offsets[g + 1] - 1, over `threads` threads. ticks has one entry a group.
void summarize_groups(std::span<const double> values, std::span<const std::int64_t> offsets,
                      std::span<const double> ticks, std::span<Summary> summaries, int threads);

}  // namespace linkgauge
