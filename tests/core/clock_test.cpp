// The period of the counter behind a clock that is read in whole nanoseconds.
#include "measure/clock.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace linkgauge {
namespace {

// Readings of a counter of `hertz`, cut to whole nanoseconds as the kernel does it (a multiplication and a shift), some
// `cost_ns` apart, now and then far apart.
std::vector<std::int64_t> readings_of(double hertz, double cost_ns, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> apart(cost_ns, 2 * cost_ns);
  constexpr int kShift = 24;
  const auto factor = static_cast<std::uint64_t>(1e9 / hertz * (1U << kShift));
  const auto offset = static_cast<std::uint64_t>(random());
  std::vector<std::int64_t> readings;
  double now_ns = apart(random);
  while (readings.size() < 100) {
    const auto ticks = static_cast<std::uint64_t>(now_ns / 1e9 * hertz);
    const auto now = static_cast<std::int64_t>((ticks * factor + offset) >> kShift);
    if (readings.empty() || now > readings.back()) readings.push_back(now);
    now_ns += apart(random) + (random() % 50 == 0 ? 700 : 0);
  }
  return readings;
}

TEST(Clock, ThePeriodOfItsCounterIsFound) {
  // Arm's generic timers, HPET and the ACPI timer.
  for (const double hertz : {19.2e6, 24e6, 25e6, 50e6, 54e6, 100e6, 121.875e6, 400e6, 14.31818e6, 3.579545e6}) {
    for (const double cost_ns : {9.0, 25.0, 120.0}) {
      for (unsigned seed = 1; seed <= 20; ++seed) {
        const double period = 1e9 / hertz;
        EXPECT_NEAR(period_of(readings_of(hertz, cost_ns, seed)), period, 0.01 * period)
            << hertz / 1e6 << " MHz, read each " << cost_ns << " ns, seed " << seed;
      }
    }
  }
}

// A counter about as fast as whole nanoseconds, as POWER's time base and Arm's newer timers, or faster, as the TSC of
// x86.
TEST(Clock, AFasterCounterResolvesOneNanosecond) {
  for (const double hertz : {512e6, 1e9, 1.9e9, 2.4e9, 3.7e9}) {
    for (const double cost_ns : {9.0, 25.0, 120.0}) {
      for (unsigned seed = 1; seed <= 20; ++seed) {
        EXPECT_EQ(period_of(readings_of(hertz, cost_ns, seed)), 1)
            << hertz / 1e6 << " MHz, read each " << cost_ns << " ns, seed " << seed;
      }
    }
  }
}

TEST(Clock, FewReadingsGiveTheSmallestStep) {
  EXPECT_EQ(period_of({}), 1);
  EXPECT_EQ(period_of(std::vector<std::int64_t>{7}), 1);
  EXPECT_NEAR(period_of(std::vector<std::int64_t>{0, 4'000'000, 8'000'000}), 4e6, 1);
  EXPECT_NEAR(period_of(std::vector<std::int64_t>{0, 512, 1024, 1536}), 512, 0.01);
}

TEST(Clock, OfThisHostIsMeasured) {
  const ClockFacts facts = measure_host_clock();
  EXPECT_GT(facts.cost_ns, 0);
  EXPECT_GE(facts.resolution_ns, 1);
  // Nothing that is read in a row lies closer together, but for the cut to whole nanoseconds.
  std::int64_t before = now_ns();
  for (int read = 0; read < 10'000; ++read) {
    const std::int64_t now = now_ns();
    if (now > before) {
      EXPECT_GT(static_cast<double>(now - before), facts.resolution_ns - 1.5);
    }
    before = now;
  }
}

}  // namespace
}  // namespace linkgauge
