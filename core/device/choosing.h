// Which of several ways is taken by times that scatter, so that two launches on one machine take the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace linkgauge {

// By round, by candidate: times in one unit. All candidates once a round, so that what drifts is in every one.
using RoundsOfTimes = std::vector<std::vector<double>>;

struct Choice {
  std::size_t index = 0;
  bool clear =
      true;  // told clearly: none but this one is within the noise, or those that are differ by next to nothing
  std::vector<std::size_t> within;  // those that are, in their order: this one is the first
};

// The first candidate whose median is within the noise of the fastest's: the one that is taken by default stands first.
// The noise is how far the medians of equals may lie apart, by the rounds' own scatter around the candidates' medians,
// and 0.5 % where they scatter less. Of two rounds or more.
Choice choose_by_times(const RoundsOfTimes& rounds);

struct Trial {
  double time = 0;
  std::int64_t spent_ns = 0;  // what it took to learn
};
struct TrialRounds {
  std::int64_t least = 3;
  std::int64_t most = 5;
  std::int64_t budget_ns = INT64_MAX;
};
// `most` rounds of all candidates; where these take longer than the budget, down to `least` rounds, and then of as many
// of the first candidates as fit. The first round shows what fits: it overruns by one candidate a round at most.
RoundsOfTimes timed_in_rounds(std::size_t candidates, const TrialRounds& limits,
                              const std::function<Trial(std::size_t)>& attempt);

}  // namespace linkgauge
