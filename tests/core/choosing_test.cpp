// The choice among candidates by times that scatter.
#include "device/choosing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace linkgauge {
namespace {

// A number of random rounds of candidates whose times are `truth` in truth, each off by a factor that `noise` draws.
template <typename Noise>
RoundsOfTimes drawn(const std::vector<double>& truth, std::size_t count, Noise&& noise) {
  RoundsOfTimes rounds(count);
  for (std::vector<double>& round : rounds) {
    for (const double time : truth) round.push_back(time * (1 + noise()));
  }
  return rounds;
}

struct Scatter {
  std::mt19937 random;
  std::normal_distribution<double> normal;
  Scatter(unsigned seed, double deviation) : random(seed), normal(0, deviation) {}
  double operator()() { return normal(random); }
};

constexpr int kSeeds = 1000;

TEST(Choosing, WithoutNoiseTheFastestIsTakenWhereItIsClearlyFaster) {
  const auto none = [] { return 0.0; };
  std::mt19937 random(5);
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::vector<double> truth(1 + random() % 9);
    for (std::size_t i = 0; i < truth.size(); ++i) truth[i] = 100 * (1 + 0.01 * static_cast<double>(i));
    std::shuffle(truth.begin(), truth.end(), random);
    const Choice choice = choose_by_times(drawn(truth, 3, none));
    EXPECT_EQ(truth[choice.index], 100);
    EXPECT_TRUE(choice.clear);
  }
}

TEST(Choosing, TheFirstWinsTies) {
  const auto none = [] { return 0.0; };
  EXPECT_EQ(choose_by_times(drawn({5, 5, 5}, 3, none)).index, 0U);
  EXPECT_EQ(choose_by_times(drawn({7, 5, 5}, 3, none)).index, 1U);
  EXPECT_EQ(choose_by_times(drawn({100.4, 100, 100.3}, 3, none)).index, 0U) << "0.4 % are nobody's to tell";
  EXPECT_EQ(choose_by_times(drawn({100.6, 100, 100.3}, 3, none)).index, 1U);
  EXPECT_EQ(choose_by_times(drawn({0, 0}, 3, none)).index, 0U) << "below the clock's resolution";
}

// Of equals the first; and of others the one that is faster than the noise is wide.
TEST(Choosing, TwoLaunchesOfOneTruthChooseTheSame) {
  const std::vector<std::vector<double>> truths{
      {100, 100, 100, 100, 100, 100, 100}, {100, 100}, {150, 200, 100, 160, 150, 170, 300}};
  for (const std::vector<double>& truth : truths) {
    const std::size_t fastest = truth[2 % truth.size()] < truth[0] ? 2 : 0;
    for (const double deviation : {0.0005, 0.005, 0.02, 0.05}) {
      for (const std::size_t rounds : {3U, 5U, 7U}) {
        int others = 0;
        for (unsigned seed = 0; seed < kSeeds; ++seed) {
          Scatter scatter(seed, deviation);
          if (choose_by_times(drawn(truth, rounds, scatter)).index != fastest) ++others;
        }
        // The scatter of three rounds of two is known but roughly.
        EXPECT_LE(others, kSeeds / (truth.size() == 2 || rounds == 3 ? 10 : 30))
            << truth.size() << " candidates, " << deviation << ", " << rounds << " rounds";
      }
    }
  }
}

TEST(Choosing, OneThatIsSlowerByMoreThanTheSpreadIsNeverTaken) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    std::mt19937 random(seed);
    const double widest = 0.001 * (1 + seed % 50);
    std::uniform_real_distribution<double> within(-widest, widest);
    const double slower = 100 * (1 + std::max(12 * widest, 0.01));
    const auto choice = choose_by_times(drawn({slower, slower, 100, slower}, 3, [&] { return within(random); }));
    EXPECT_EQ(choice.index, 2U) << seed;
    EXPECT_TRUE(choice.clear);
  }
}

// What a neighbor's burst hits in one round is not what decides.
TEST(Choosing, ABurstOverOneRoundOfThreeChangesNothing) {
  RoundsOfTimes rounds{{100, 90}, {101, 91}, {100, 90}};
  EXPECT_EQ(choose_by_times(rounds).index, 1U);
  rounds[1] = {1000, 950};
  EXPECT_EQ(choose_by_times(rounds).index, 1U);
  rounds[1] = {100, 950};
  EXPECT_EQ(choose_by_times(rounds).index, 1U);
}

TEST(Choosing, ScatterThatHidesWhichIsFasterIsToldOf) {
  const Choice hidden = choose_by_times({{100, 70, 900}, {60, 130, 900}, {140, 100, 900}});
  EXPECT_FALSE(hidden.clear);
  EXPECT_EQ(hidden.within, (std::vector<std::size_t>{0, 1})) << "what is to be measured better";
  EXPECT_TRUE(choose_by_times({{100, 7}, {60, 13}, {140, 10}}).clear);
  EXPECT_TRUE(choose_by_times({{100, 100.1}, {100.1, 100}, {100, 100}}).clear) << "either is right";
}

TEST(TrialRounds, AllCandidatesAreTriedOnceARound) {
  std::vector<std::size_t> order;
  const RoundsOfTimes rounds = timed_in_rounds(3, {3, 4}, [&](std::size_t candidate) {
    order.push_back(candidate);
    return Trial{static_cast<double>(order.size()), 10};
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
  ASSERT_EQ(rounds.size(), 4U);
  EXPECT_EQ(rounds[1], (std::vector<double>{4, 5, 6}));
}

TEST(TrialRounds, FewerRoundsAndThenFewerCandidatesWhereTimeIsShort) {
  for (const std::int64_t spent_ns : {1, 20, 45, 70, 150, 400, 2000}) {
    std::int64_t total_ns = 0;
    const RoundsOfTimes rounds = timed_in_rounds(5, {3, 5, 1000}, [&](std::size_t) {
      total_ns += spent_ns;
      return Trial{1, spent_ns};
    });
    EXPECT_EQ(rounds.size(), spent_ns <= 40 ? 5U : spent_ns <= 45 ? 4U : 3U) << spent_ns;
    EXPECT_LE(total_ns, 1000 + 3 * spent_ns);
    EXPECT_EQ(rounds[0].size(), spent_ns <= 70 ? 5U : spent_ns == 150 ? 3U : 1U) << spent_ns;
  }
}

}  // namespace
}  // namespace linkgauge
