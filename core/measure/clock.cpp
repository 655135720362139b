#include "measure/clock.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace linkgauge {
namespace {

double median_of(std::vector<std::int64_t>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return static_cast<double>(*middle);
}

// Readings of the host clock that all differ, of several stretches the shortest: the others were interrupted. What lies
// between two readings varies, or all would be as far apart as a read takes, whatever the clock's period.
std::vector<std::int64_t> closest_readings() {
  constexpr int kStretches = 20;
  constexpr std::size_t kReadings = 100;
  constexpr int kMostReads = 1 << 16;  // of a clock that stands still for milliseconds
  std::vector<std::int64_t> closest;
  for (int stretch = 0; stretch < kStretches; ++stretch) {
    std::vector<std::int64_t> readings{now_ns()};
    readings.reserve(kReadings);
    unsigned random = 1;
    for (int read = 0; readings.size() < kReadings && (read < kMostReads || readings.size() < 3); ++read) {
      random = random * 1'103'515'245U + 12'345U;
      for (volatile unsigned turns = random >> 28U; turns > 0;) turns = turns - 1;
      const std::int64_t now = now_ns();
      if (now > readings.back()) readings.push_back(now);
    }
    const auto span_of = [](const std::vector<std::int64_t>& of) { return of.back() - of.front(); };
    if (closest.empty() || span_of(readings) < span_of(closest)) closest = std::move(readings);
  }
  return closest;
}

}  // namespace

ClockFacts measure_host_clock() {
  constexpr int kRounds = 200;
  constexpr int kReads = 64;  // a round: long enough that a clock of coarse steps shows the cost of one read
  ClockFacts facts;
  std::vector<std::int64_t> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t first = now_ns();
    std::int64_t last = first;
    for (int read = 0; read < kReads; ++read) last = now_ns();
    rounds.push_back(last - first);
  }
  facts.cost_ns = median_of(rounds) / kReads;
  facts.resolution_ns = period_of(closest_readings());
  return facts;
}

double period_of(std::span<const std::int64_t> readings) {
  constexpr std::size_t kEnough = 100;
  constexpr double kShortest = 2.1;  // any whole nanoseconds are even or odd, so two would explain them all
  constexpr double kSlack = 0.1;     // of a period, that a wrong phase may be of a period tried
  readings = readings.first(std::min(readings.size(), kEnough));
  if (readings.size() < 2) return 1;
  std::int64_t smallest = readings[1] - readings[0];
  for (std::size_t i = 2; i < readings.size(); ++i) smallest = std::min(smallest, readings[i] - readings[i - 1]);
  const auto span_ns = static_cast<double>(readings.back() - readings.front());
  const auto since_first = [&](std::size_t i) { return static_cast<double>(readings[i] - readings.front()); };
  const auto explains = [&](double period) {
    double least = 0;
    double most = 0;
    for (std::size_t i = 1; i < readings.size() && most - least < 1 + kSlack * period; ++i) {
      const double periods = since_first(i) / period;
      const double off_ns = (periods - std::round(periods)) * period;
      least = std::min(least, off_ns);
      most = std::max(most, off_ns);
    }
    return most - least < 1 + kSlack * period;
  };
  // From the longest on, in equal steps of how many periods the readings span: so no step moves a phase by more than
  // half the slack.
  for (double periods = span_ns / static_cast<double>(smallest + 1); span_ns / periods > kShortest;
       periods += kSlack / 2) {
    const double period = span_ns / periods;
    if (!explains(period)) continue;
    double products = 0;  // the line through the first reading that is closest to all
    double squares = 0;
    for (std::size_t i = 1; i < readings.size(); ++i) {
      const double number = std::round(since_first(i) / period);
      products += number * since_first(i);
      squares += number * number;
    }
    return products / squares;
  }
  return 1;
}

ClockFacts measure_event_clock(DeviceRuntime& runtime, int device) {
  constexpr int kPairs = 200;
  ClockFacts facts;
  Stream stream(runtime, device);
  const Event start(runtime, device);
  const Event stop(runtime, device);
  std::vector<std::int64_t> costs;
  std::vector<std::int64_t> steps;
  for (int pair = 0; pair < kPairs; ++pair) {
    const std::int64_t before_ns = now_ns();
    runtime.record(start.handle(), stream.handle());
    runtime.record(stop.handle(), stream.handle());
    costs.push_back(now_ns() - before_ns);
    runtime.synchronize_event(stop.handle());
    steps.push_back(runtime.elapsed_ns(start.handle(), stop.handle()));
  }
  facts.cost_ns = median_of(costs) / 2;
  steps.push_back(0);  // as whole a multiple as any
  std::sort(steps.begin(), steps.end());
  steps.resize(steps.size() / 2 + 1);  // an interrupted one is long, and to look through it takes long
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  facts.resolution_ns = steps.size() < 2 ? 0 : period_of(steps);
  return facts;
}

}  // namespace linkgauge
