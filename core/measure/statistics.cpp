#include "measure/statistics.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <numbers>
#include <numeric>
#include <vector>

#include "base/joined_threads.h"

namespace linkgauge {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kFence = 5;           // quartile distances beyond the quartiles: an outlier counts as 7 sigma
constexpr double kWorthCutting = 0.5;  // of the squared standard error without a cut
constexpr double kManyForCut = 60;
constexpr std::size_t kSmallestCuttable = 10;  // values; below, no cut can be told from noise
constexpr std::size_t kMostForRanks = 2'000;   // longer series need no model: their correlation is seen directly
constexpr std::size_t kMostForLags = 10'000;   // longer series are cut into this many blocks first: lags cost n each
constexpr double kFewest = 6;                  // the smallest number of values whose (min, max) covers 95 %
constexpr double kConfidence = 0.95;
constexpr double kZ = 1.959963984540054;  // normal quantile of 97.5 %
constexpr double kMostCorrelated = 0.99;

double quantile_of_sorted(std::span<const double> sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const double rest = position - static_cast<double>(below);
  if (rest == 0) return sorted[below];
  return sorted[below] + rest * (sorted[below + 1] - sorted[below]);
}

double quantile(std::vector<double>& values, double share) {  // reorders
  const double position = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(values.begin(), at, values.end());
  const double rest = position - static_cast<double>(below);
  if (rest == 0) return *at;
  return *at + rest * (*std::min_element(at + 1, values.end()) - *at);
}

// Correlation of a series of mean 0 with itself `lag` later, over its variance; the sum is over n, which keeps the
// sequence positive definite.
double lagged(std::span<const double> centered, double sum_of_squares, std::size_t lag) {
  double sum = 0;
  for (std::size_t i = lag; i < centered.size(); ++i) sum += centered[i] * centered[i - lag];
  return sum / sum_of_squares;
}

double center(std::vector<double>& values) {  // returns the sum of squares about the mean
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double sum = 0;
  for (double& value : values) {
    value -= mean;
    sum += value * value;
  }
  return sum;
}

// Integrated autocorrelation time by the initial monotone sequence. `centered` has mean 0.
double time_by_sequence(std::span<const double> centered, double sum_of_squares) {
  double total = 0;
  double before = std::numeric_limits<double>::infinity();
  for (std::size_t lag = 0; lag + 1 <= centered.size() / 2; lag += 2) {
    const double even = lag == 0 ? 1.0 : lagged(centered, sum_of_squares, lag);
    const double pair = std::min(before, even + lagged(centered, sum_of_squares, lag + 1));
    if (pair <= 0) break;
    total += pair;
    before = pair;
  }
  return std::max(1.0, 2 * total - 1);
}

// The same for a long series: correlation within blocks shows in the variance of their means, correlation among blocks
// in their own sequence.
double time_by_blocks(std::span<const double> centered, double sum_of_squares) {
  const std::size_t block = (centered.size() + kMostForLags - 1) / kMostForLags;
  if (block == 1) return time_by_sequence(centered, sum_of_squares);
  std::vector<double> means;
  for (std::size_t first = 0; first + block <= centered.size(); first += block) {
    means.push_back(std::accumulate(centered.begin() + static_cast<std::ptrdiff_t>(first),
                                    centered.begin() + static_cast<std::ptrdiff_t>(first + block), 0.0) /
                    static_cast<double>(block));
  }
  const double count = static_cast<double>(means.size());
  const double block_squares = center(means);
  if (block_squares <= 0) return 1;
  const double within =
      static_cast<double>(block) * (block_squares / count) / (sum_of_squares / static_cast<double>(centered.size()));
  return std::max(1.0, within * time_by_sequence(means, block_squares));
}

// The lag-1 correlation of a short series is too low by about (1 + 3 rho) / n (Kendall, Biometrika 41, 1954), with a
// standard error of sqrt((1 - rho^2) / n): corrected, and one standard error higher.
double cautious_correlation(double rho, double n) {
  return std::clamp(rho + (1 + 3 * rho) / n + std::sqrt(std::max(0.0, 1 - rho * rho) / n), 0.0, kMostCorrelated);
}

// Ranks with ties at their mean, centered.
std::vector<double> centered_ranks(std::span<const double> series) {
  std::vector<std::size_t> order(series.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return series[a] < series[b]; });
  std::vector<double> ranks(series.size());
  const double middle = static_cast<double>(series.size() - 1) / 2;
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && series[order[last + 1]] == series[order[first]]) ++last;
    const double rank = static_cast<double>(first + last) / 2 - middle;
    for (std::size_t i = first; i <= last; ++i) ranks[order[i]] = rank;
    first = last + 1;
  }
  return ranks;
}

// Time of the indicator of a Gaussian first-order series whose ranks correlate by `rank_correlation`: the indicator's
// correlation is 2/pi asin(rho^k), the ranks' 6/pi asin(rho/2).
double time_by_gaussian_model(double rank_correlation, double n) {
  const double rho = cautious_correlation(2 * std::sin(std::numbers::pi / 6 * rank_correlation), n);
  double time = 1;
  double power = rho;
  while (power > 1e-4) {
    time += 4 / std::numbers::pi * std::asin(power);
    power *= rho;
  }
  return time;
}

// Time of a two-state chain.
double time_by_chain_model(double indicator_correlation, double n) {
  const double rho = cautious_correlation(indicator_correlation, n);
  return (1 + rho) / (1 - rho);
}

// The largest k for which at most 2.5 % of Binomial(n, 1/2) lies below k: the k-th smallest and k-th largest of n
// independent values enclose the median with 95 %. 0: there is none.
std::size_t order_of_interval(std::size_t n) {
  const auto size = static_cast<double>(n);
  if (n > 1'000) return static_cast<std::size_t>(size / 2 - kZ / 2 * std::sqrt(size));
  double probability = std::exp2(-size);
  double below = probability;  // P(B < k + 1)
  std::size_t k = 0;
  while (below <= (1 - kConfidence) / 2) {
    ++k;
    probability *= (size - static_cast<double>(k) + 1) / static_cast<double>(k);
    below += probability;
  }
  return k;
}

double effective_size_about(std::span<const double> series, double center_value) {
  const std::size_t n = series.size();
  const auto count = static_cast<double>(n);
  if (n < 4) return count;
  std::vector<double> indicator(n);
  std::transform(series.begin(), series.end(), indicator.begin(), [&](double value) {
    return value > center_value ? 1.0 : value < center_value ? -1.0 : 0.0;
  });
  const double squares = center(indicator);
  if (squares <= 0) return count;  // all equal
  double time = time_by_blocks(indicator, squares);
  if (n <= kMostForRanks) {
    time = std::max(time, time_by_chain_model(lagged(indicator, squares, 1), count));
    std::vector<double> ranks = centered_ranks(series);
    const double rank_squares = center(ranks);
    time = std::max(time, time_by_gaussian_model(lagged(ranks, rank_squares, 1), count));
  }
  return std::clamp(count / time, 1.0, count);
}

Interval interval_of_sorted(std::span<const double> sorted, double effective, double tick) {
  const std::size_t n = sorted.size();
  Interval interval{sorted.front(), sorted.back()};
  if (effective < kFewest) {
    const double beyond = (interval.high - interval.low) / 2 * (1 - effective / kFewest);
    // What is never negative has no negative median.
    interval.low = interval.low < 0 ? interval.low - beyond : std::max(interval.low - beyond, 0.0);
    interval.high += beyond;
  } else {
    const auto whole = static_cast<std::size_t>(effective);
    const auto order = static_cast<double>(order_of_interval(whole));
    // The same share of the n values as the order has of the effective ones.
    const auto rank = static_cast<std::size_t>(order * static_cast<double>(n + 1) / static_cast<double>(whole + 1));
    interval = {sorted[std::max<std::size_t>(rank, 1) - 1], sorted[n - std::max<std::size_t>(rank, 1)]};
  }
  const double missing = tick - (interval.high - interval.low);
  if (missing > 0) {
    interval.low -= missing / 2;
    interval.high += missing / 2;
  }
  return interval;
}

}  // namespace

double median(std::span<const double> series) {
  if (series.empty()) return kNan;
  std::vector<double> values(series.begin(), series.end());
  return quantile(values, 0.5);
}

std::size_t warmup_cut(std::span<const double> series) {
  const std::size_t n = series.size();
  if (n < kSmallestCuttable) return 0;
  std::vector<double> later(series.begin() + static_cast<std::ptrdiff_t>(n / 2), series.end());
  const double quartile_1 = quantile(later, 0.25);
  const double quartile_3 = quantile(later, 0.75);
  const auto [least, most] = std::minmax_element(later.begin(), later.end());
  const double width = quartile_3 > quartile_1 ? kFence * (quartile_3 - quartile_1) : *most - *least;
  const double low = quartile_1 - width;
  const double high = quartile_3 + width;

  double mean = 0;
  double squares = 0;
  double best = std::numeric_limits<double>::infinity();
  double uncut = 0;
  std::size_t cut = 0;
  for (std::size_t first = n; first-- > 0;) {  // from the end: the values from `first` on
    const double value = std::clamp(series[first], low, high);
    const auto count = static_cast<double>(n - first);
    const double step = value - mean;
    mean += step / count;
    squares += step * (value - mean);
    if (first > n / 2) continue;
    const double error = squares / (count * count);
    if (error <= best) {
      best = error;
      cut = first;
    }
    uncut = error;
  }
  // Few values that hang together look like a warm-up now and then: ask for more of them.
  const double worth = kWorthCutting * std::min(1.0, static_cast<double>(n) / kManyForCut);
  return best < worth * uncut ? cut : 0;
}

double effective_size(std::span<const double> series) { return effective_size_about(series, median(series)); }

Interval median_interval(std::span<const double> series, double tick) {
  if (series.empty()) return {kNan, kNan};
  std::vector<double> sorted(series.begin(), series.end());
  std::sort(sorted.begin(), sorted.end());
  return interval_of_sorted(sorted, effective_size_about(series, quantile_of_sorted(sorted, 0.5)), tick);
}

Summary summarize(std::span<const double> series, double tick) {
  Summary summary;
  summary.count_all = static_cast<std::int64_t>(series.size());
  const std::size_t cut = warmup_cut(series);
  const std::span<const double> rest = series.subspan(cut);
  summary.warmup_cut = static_cast<std::int64_t>(cut);
  summary.count = static_cast<std::int64_t>(rest.size());
  if (rest.empty()) {
    summary.median = summary.mean = summary.quartile_1 = summary.quartile_3 = summary.p5 = summary.p95 = summary.p99 =
        summary.min = summary.max = kNan;
    summary.interval = {kNan, kNan};
    return summary;
  }
  std::vector<double> sorted(rest.begin(), rest.end());
  std::sort(sorted.begin(), sorted.end());
  summary.median = quantile_of_sorted(sorted, 0.5);
  summary.effective_size = effective_size_about(rest, summary.median);
  summary.interval = interval_of_sorted(sorted, summary.effective_size, tick);
  summary.mean = std::accumulate(rest.begin(), rest.end(), 0.0) / static_cast<double>(rest.size());
  summary.quartile_1 = quantile_of_sorted(sorted, 0.25);
  summary.quartile_3 = quantile_of_sorted(sorted, 0.75);
  summary.p5 = quantile_of_sorted(sorted, 0.05);
  summary.p95 = quantile_of_sorted(sorted, 0.95);
  summary.p99 = quantile_of_sorted(sorted, 0.99);
  summary.min = sorted.front();
  summary.max = sorted.back();
  return summary;
}

void summarize_groups(std::span<const double> values, std::span<const std::int64_t> offsets,
                      std::span<const double> ticks, std::span<Summary> summaries, int threads) {
  std::atomic<std::size_t> next{0};
  std::mutex failing;
  std::exception_ptr failure;  // the first of any thread: it would end the process where nobody catches it
  const auto work = [&]() noexcept {
    try {
      for (std::size_t group = next++; group < summaries.size(); group = next++) {
        const auto first = static_cast<std::size_t>(offsets[group]);
        const auto count = static_cast<std::size_t>(offsets[group + 1]) - first;
        summaries[group] = summarize(values.subspan(first, count), ticks[group]);
      }
    } catch (...) {
      const std::lock_guard lock(failing);
      if (!failure) failure = std::current_exception();
    }
  };
  JoinedThreads helpers;
  const auto useful = std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), summaries.size());
  for (std::size_t i = 1; i < useful; ++i) {
    if (!helpers.try_start(work)) break;  // those that are there do it, more slowly
  }
  work();
  helpers.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace linkgauge
