#include "device/choosing.h"

#include <algorithm>
#include <cmath>

namespace linkgauge {
namespace {

constexpr double kLeastNoise = 0.005;
constexpr double kStandardErrors = 4.5;               // two medians of equals seldom lie further apart
constexpr double kMedianAbsoluteToStandard = 1.4826;  // of a normal scatter, as the next
constexpr double kErrorOfMedian = 1.2533;             // in errors of a mean
constexpr double kLeastTime = 1e-9;

// The lower of two.
double middle(std::vector<double> values, std::size_t from = 0) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(from + (values.size() - from - 1) / 2);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace

Choice choose_by_times(const RoundsOfTimes& rounds) {
  const std::size_t candidates = rounds.front().size();
  std::vector<double> medians;
  std::vector<double> deviations;
  for (std::size_t candidate = 0; candidate < candidates; ++candidate) {
    std::vector<double> times;
    for (const std::vector<double>& round : rounds) times.push_back(std::max(round[candidate], kLeastTime));
    medians.push_back(middle(times));
    for (const double time : times) deviations.push_back(std::abs(time / medians.back() - 1));
  }
  // A candidate's median deviates from itself by 0: so many of the smallest say nothing.
  const double scatter = kMedianAbsoluteToStandard * middle(deviations, candidates);
  const double error = kErrorOfMedian * scatter / std::sqrt(static_cast<double>(rounds.size()));
  const double noise = std::max(kLeastNoise, kStandardErrors * error);
  const double limit = *std::min_element(medians.begin(), medians.end()) * (1 + noise);
  Choice choice;
  for (std::size_t candidate = 0; candidate < candidates; ++candidate) {
    if (medians[candidate] <= limit) choice.within.push_back(candidate);
  }
  choice.index = choice.within.front();
  choice.clear = choice.within.size() == 1 || noise <= kLeastNoise;
  return choice;
}

RoundsOfTimes timed_in_rounds(std::size_t candidates, const TrialRounds& limits,
                              const std::function<Trial(std::size_t)>& attempt) {
  RoundsOfTimes rounds(1);
  std::int64_t round_ns = 0;
  while (rounds[0].size() < candidates && round_ns <= limits.budget_ns / limits.least) {
    const Trial trial = attempt(rounds[0].size());
    rounds[0].push_back(trial.time);
    round_ns += trial.spent_ns;
  }
  const std::int64_t fit = limits.budget_ns / std::max<std::int64_t>(round_ns, 1);
  const auto wanted = static_cast<std::size_t>(std::clamp(fit, limits.least, limits.most));
  while (rounds.size() < wanted) {
    std::vector<double> round;
    while (round.size() < rounds[0].size()) round.push_back(attempt(round.size()).time);
    rounds.push_back(std::move(round));
  }
  return rounds;
}

}  // namespace linkgauge
