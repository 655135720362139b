// Coverage of the median's interval by simulation, and the rules around it.
#include "measure/statistics.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "base/errors.h"
#include "base/joined_threads.h"
#include "fewer.h"

namespace linkgauge {
namespace {

using Random = std::mt19937_64;
using Maker = std::function<std::vector<double>(std::size_t, Random&)>;

Maker first_order(double rho) {
  return [rho](std::size_t n, Random& random) {
    std::normal_distribution<double> normal;
    std::vector<double> series(n);
    double value = normal(random);  // from the stationary distribution
    for (double& each : series) {
      each = value;
      value = rho * value + std::sqrt(1 - rho * rho) * normal(random);
    }
    return series;
  };
}

// Two modes far apart, `share` of the values in the lower one.
Maker two_modes(double share) {
  return [share](std::size_t n, Random& random) {
    std::normal_distribution<double> normal(0, 0.3);
    std::bernoulli_distribution low(share);
    std::vector<double> series(n);
    for (double& each : series) each = (low(random) ? 1.0 : 10.0) + normal(random);
    return series;
  };
}

// Share of series whose interval holds the true median, and the mean width.
struct Coverage {
  double share;
  double width;
};
Coverage coverage_of(const Maker& make, double truth, std::size_t n, bool cut) {
  constexpr int kSeries = 3'000;
  Random random(n * 7919 + 17);
  int held = 0;
  double width = 0;
  for (int i = 0; i < kSeries; ++i) {
    const std::vector<double> series = make(n, random);
    const std::span<const double> rest = std::span(series).subspan(cut ? warmup_cut(series) : 0);
    const Interval interval = median_interval(rest, 0);
    held += interval.low <= truth && truth <= interval.high ? 1 : 0;
    width += interval.high - interval.low;
  }
  return {static_cast<double>(held) / kSeries, width / kSeries};
}

// 93 % of 3,000 series: the bar itself. With a true coverage of 95 % the chance to fall below is under 1e-6.
class IntervalCoverage : public testing::TestWithParam<std::tuple<std::size_t, bool>> {};
INSTANTIATE_TEST_SUITE_P(Lengths, IntervalCoverage,
                         testing::Combine(testing::Values(30, 60, 120, 300, 1000), testing::Bool()));

TEST_P(IntervalCoverage, IsAtLeast93Percent) {
  const auto [n, cut] = GetParam();
  if (n == 1000 && !kThorough) GTEST_SKIP() << "only './lg test --all' runs it: shorter series are the harder ones";
  for (const double rho : {0.0, 0.5, 0.9}) {
    const Coverage coverage = coverage_of(first_order(rho), 0, n, cut);
    EXPECT_GE(coverage.share, 0.93) << "rho " << rho;
    RecordProperty("rho_" + std::to_string(static_cast<int>(10 * rho)), std::to_string(coverage.share));
  }
  EXPECT_GE(coverage_of(two_modes(0.5), 5.5, n, cut).share, 0.93);
  // 40 % below: the median is the quantile of 1/6 of the upper mode, -0.9674 of its standard deviations.
  EXPECT_GE(coverage_of(two_modes(0.4), 10 - 0.3 * 0.967421566, n, cut).share, 0.93);
}

TEST(MedianInterval, IsNotMuchWiderThanIndependentValuesNeed) {
  // The median of n independent normal values has a standard error of sqrt(pi / 2n).
  for (const std::size_t n : {60U, 300U, 1000U}) {
    const double ideal = 2 * 1.96 * std::sqrt(M_PI / 2 / static_cast<double>(n));
    const double width = coverage_of(first_order(0), 0, n, true).width;
    EXPECT_LT(width, 1.45 * ideal) << n;
    EXPECT_GT(width, 0.9 * ideal) << n;
  }
}

TEST(MedianInterval, NarrowsWithMoreValues) {
  double before = 1e9;
  for (const std::size_t n : {30U, 120U, 480U, 1920U, 30'000U}) {
    Random random(n);
    const std::vector<double> series = first_order(0.5)(n, random);
    const Interval interval = median_interval(series, 0);
    EXPECT_LT(interval.high - interval.low, before);
    before = interval.high - interval.low;
  }
}

TEST(MedianInterval, IsNeverNarrowerThanATick) {
  const std::vector<double> same(100, 40.0);
  const Interval interval = median_interval(same, 10);
  EXPECT_DOUBLE_EQ(interval.high - interval.low, 10);
  EXPECT_DOUBLE_EQ((interval.high + interval.low) / 2, 40);
  EXPECT_DOUBLE_EQ(median_interval(same, 0).low, 40);
}

TEST(MedianInterval, OfFewValuesReachesBeyondThem) {
  const std::vector<double> few{1, 2, 3, 4, 5};
  const Interval interval = median_interval(few, 0);
  EXPECT_LE(interval.low, 1);
  EXPECT_GE(interval.high, 5);
  EXPECT_TRUE(std::isnan(median_interval({}, 1).low));
  EXPECT_DOUBLE_EQ(median_interval(std::vector<double>{3}, 0).low, 3);
}

TEST(EffectiveSize, FollowsTheCorrelation) {
  Random random(5);
  for (const std::size_t n : {1'000U, 1'900U, 50'000U, 400'000U}) {
    const auto count = static_cast<double>(n);
    const double independent = effective_size(first_order(0)(n, random));
    EXPECT_GT(independent, 0.8 * count);
    EXPECT_LE(independent, count);
    // Integrated time of the indicator of a first-order series: 1 + 2 sum of 2/pi asin(rho^k).
    for (const double rho : {0.5, 0.9}) {
      double time = 1;
      for (double power = rho; power > 1e-9; power *= rho) time += 4 / M_PI * std::asin(power);
      const double seen = count / effective_size(first_order(rho)(n, random));
      EXPECT_GT(seen, 0.7 * time) << n << " " << rho;
      EXPECT_LT(seen, 1.8 * time) << n << " " << rho;
    }
  }
  EXPECT_DOUBLE_EQ(effective_size(std::vector<double>(50, 1.0)), 50);
  std::vector<double> rising(100'000);
  std::iota(rising.begin(), rising.end(), 0.0);
  EXPECT_LT(effective_size(rising), 20) << "a drift is one value, told slowly";
}

TEST(EffectiveSize, TiesAreNoCorrelation) {
  Random random(6);
  std::vector<double> series = first_order(0)(1'000, random);
  for (double& value : series) value = std::floor(2 * value);  // a coarse clock
  EXPECT_GT(effective_size(series), 800);
}

TEST(WarmupCut, FindsTheWarmUp) {
  Random random(7);
  for (const std::size_t n : {60U, 300U, 3'000U}) {
    for (const std::size_t slow : {n / 20, n / 5}) {
      int found = 0;
      for (int i = 0; i < 100; ++i) {
        std::vector<double> series = first_order(0)(n, random);
        for (std::size_t k = 0; k < n; ++k) series[k] = 100 + series[k] + (k < slow ? 50 : 0);
        const std::size_t cut = warmup_cut(series);
        found += cut >= slow && cut <= slow + n / 4 ? 1 : 0;
      }
      EXPECT_GE(found, 75) << slow << " of " << n;
    }
  }
}

TEST(WarmupCut, LeavesASteadySeriesAlone) {
  Random random(8);
  int cuts = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<double> series = first_order(0)(120, random);
    series[3] = 1000;  // one early outlier is no warm-up
    cuts += warmup_cut(series) > 4 ? 1 : 0;
  }
  EXPECT_LT(cuts, 25);
  EXPECT_EQ(warmup_cut(std::vector<double>(100, 3.0)), 0U);
  EXPECT_EQ(warmup_cut({}), 0U);
}

TEST(WarmupCut, IsAtMostHalf) {
  std::vector<double> falling(100);
  for (std::size_t i = 0; i < 100; ++i) falling[i] = 100 - static_cast<double>(i);
  EXPECT_LE(warmup_cut(falling), 50U);
  EXPECT_GT(warmup_cut(falling), 20U);
}

TEST(Median, MatchesSorting) {
  Random random(9);
  for (std::size_t n = 1; n < 40; ++n) {
    std::vector<double> series = first_order(0)(n, random);
    const double found = median(series);
    std::sort(series.begin(), series.end());
    EXPECT_NEAR(found, (series[(n - 1) / 2] + series[n / 2]) / 2, 1e-12);
  }
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(SummarizeGroups, IsTheSameAsOneByOne) {
  Random random(10);
  std::vector<double> values;
  std::vector<std::int64_t> offsets{0};
  for (const std::size_t n : {0U, 1U, 7U, 100U, 2'500U, 30U}) {
    const std::vector<double> series = first_order(0.3)(n, random);
    values.insert(values.end(), series.begin(), series.end());
    offsets.push_back(static_cast<std::int64_t>(values.size()));
  }
  const std::vector<double> ticks(6, 0.001);
  std::vector<Summary> summaries(6);
  summarize_groups(values, offsets, ticks, summaries, 3);
  EXPECT_EQ(summaries[0].count, 0);
  EXPECT_TRUE(std::isnan(summaries[0].median));
  for (std::size_t g = 1; g < 6; ++g) {
    const std::span<const double> series(values.data() + offsets[g], values.data() + offsets[g + 1]);
    const std::size_t cut = warmup_cut(series);
    const std::span<const double> rest = series.subspan(cut);
    const Summary& summary = summaries[g];
    EXPECT_EQ(summary.warmup_cut, static_cast<std::int64_t>(cut));
    EXPECT_EQ(summary.count_all, static_cast<std::int64_t>(series.size()));
    EXPECT_DOUBLE_EQ(summary.median, median(rest));
    EXPECT_DOUBLE_EQ(summary.interval.low, median_interval(rest, 0.001).low);
    EXPECT_DOUBLE_EQ(summary.interval.high, median_interval(rest, 0.001).high);
    EXPECT_DOUBLE_EQ(summary.effective_size, effective_size(rest));
    EXPECT_DOUBLE_EQ(summary.min, *std::min_element(rest.begin(), rest.end()));
    EXPECT_LE(summary.min, summary.p5);
    EXPECT_LE(summary.p5, summary.quartile_1);
    EXPECT_LE(summary.quartile_3, summary.p95);
    EXPECT_LE(summary.p95, summary.p99);
    EXPECT_LE(summary.p99, summary.max);
  }
}

TEST(MedianInterval, OfFewValuesReachesBeyondThemAndNoTimeBelowZero) {
  const std::vector<double> burst{16, 17, 560};
  const Interval times = median_interval(burst, 0);
  EXPECT_EQ(times.low, 0);
  EXPECT_GT(times.high, 560);
  const std::vector<double> steady{100, 101, 103};
  const Interval near = median_interval(steady, 0);
  EXPECT_LT(near.low, 100);
  EXPECT_GT(near.low, 98);
  const std::vector<double> offsets{-3, 1, 2};  // differences may be negative
  EXPECT_LT(median_interval(offsets, 0).low, -3);
}

// Where the machine gives no thread the calling one does it all: threads that were begun before are joined. No process
// here has 2^48 bytes of addresses; less is given by some emulators, which are then killed for want of memory.
TEST(SummarizeGroups, AMachineWithoutThreadsTakesLonger) {
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t huge = usual;
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 48), 0);
  const std::vector<double> values = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> offsets = {0, 2, 4, 6};
  const std::vector<double> ticks = {1, 1, 1};
  std::vector<Summary> summaries(3);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(JoinedThreads().start([] {}), MemoryError);
  summarize_groups(values, offsets, ticks, summaries, 3);
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(summaries[i].median, values[2 * i] + 0.5);
}

// A second thread that cannot be had, or a first that throws, finds those that have begun.
TEST(JoinedThreads, AreJoinedHoweverTheirOwnerGoes) {
  std::atomic<int> done{0};
  try {
    JoinedThreads threads;
    for (int i = 0; i < 3; ++i) threads.start([&] { ++done; });
    throw std::runtime_error("an error of the owner's");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(done, 3);
}

}  // namespace
}  // namespace linkgauge
