#include "measure/clock.h"

#include <algorithm>
#include <vector>

namespace linkgauge {
namespace {

double median_of(std::vector<std::int64_t>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return static_cast<double>(*middle);
}

}  // namespace

ClockFacts measure_host_clock() {
  constexpr int kRounds = 200;
  constexpr int kReads = 64;  // a round: long enough that a clock of coarse steps shows the cost of one read
  ClockFacts facts;
  std::vector<std::int64_t> rounds;
  std::int64_t smallest = INT64_MAX;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t first = now_ns();
    std::int64_t before = first;
    for (int read = 0; read < kReads; ++read) {
      const std::int64_t now = now_ns();
      if (now > before) smallest = std::min(smallest, now - before);
      before = now;
    }
    rounds.push_back(before - first);
  }
  facts.cost_ns = median_of(rounds) / kReads;
  // The smallest step between reads is the read's own cost on a clock that counts nanoseconds: its resolution is then
  // the smallest difference between steps, which is 1 ns for a clock that is reported in whole nanoseconds.
  std::int64_t finest = smallest;
  std::int64_t step_before = 0;
  std::int64_t before = now_ns();
  for (int read = 0; read < kRounds * kReads; ++read) {
    const std::int64_t now = now_ns();
    const std::int64_t step = now - before;
    if (step > 0 && step_before > 0 && step != step_before) finest = std::min(finest, std::abs(step - step_before));
    step_before = step;
    before = now;
  }
  facts.resolution_ns = static_cast<double>(finest);
  return facts;
}

ClockFacts measure_event_clock(DeviceRuntime& runtime, int device) {
  constexpr int kPairs = 200;
  ClockFacts facts;
  Stream stream(runtime, device);
  const EventHandle start = runtime.create_event(device);
  const EventHandle stop = runtime.create_event(device);
  std::vector<std::int64_t> costs;
  std::vector<std::int64_t> steps;
  try {
    for (int pair = 0; pair < kPairs; ++pair) {
      const std::int64_t before_ns = now_ns();
      runtime.record(start, stream.handle());
      runtime.record(stop, stream.handle());
      costs.push_back(now_ns() - before_ns);
      runtime.synchronize_event(stop);
      steps.push_back(runtime.elapsed_ns(start, stop));
    }
  } catch (...) {
    runtime.destroy_event(start);
    runtime.destroy_event(stop);
    throw;
  }
  runtime.destroy_event(start);
  runtime.destroy_event(stop);
  facts.cost_ns = median_of(costs) / 2;
  std::sort(steps.begin(), steps.end());
  std::int64_t finest = INT64_MAX;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::int64_t step = i == 0 ? steps[0] : steps[i] - steps[i - 1];
    if (step > 0) finest = std::min(finest, step);
  }
  facts.resolution_ns = finest == INT64_MAX ? 0 : static_cast<double>(finest);
  return facts;
}

}  // namespace linkgauge
