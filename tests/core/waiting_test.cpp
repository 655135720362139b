// Waiting on words of memory: who writes and then looks is never missed by who does the same, and every raise is seen.
#include "base/waiting.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace linkgauge {
namespace {

void spin_until(const std::atomic<int>& word, int value) {
  for (int looks = 1; word.load(std::memory_order_acquire) != value; ++looks) {
    if (looks % 1000 == 0) std::this_thread::yield();
  }
}

// The litmus test "store buffering". Both begin at once; how far they are apart varies, so that they also meet.
TEST(Waiting, OneOfTwoWhoWriteAndThenLookSeesTheOther) {
  constexpr int kTurns = 20000;
  struct alignas(64) Word {
    std::atomic<int> value{0};
  };
  std::array<Word, 2> words;
  Word begun;
  Word ended;
  int seen = 0;
  std::thread other([&] {
    for (int turn = 1; turn <= kTurns; ++turn) {
      spin_until(begun.value, turn);
      store_before_looking(words[1].value, turn);
      seen = words[0].value.load(std::memory_order_seq_cst);
      ended.value.store(turn, std::memory_order_release);
    }
  });
  int missed = 0;
  for (int turn = 1; turn <= kTurns; ++turn) {
    begun.value.store(turn, std::memory_order_release);
    for (int i = turn % 40; i > 0; --i) pause_spin();
    store_before_looking(words[0].value, turn);
    const int mine = words[1].value.load(std::memory_order_seq_cst);
    spin_until(ended.value, turn);
    missed += mine != turn && seen != turn;
  }
  other.join();
  EXPECT_EQ(missed, 0);
}

// Whatever a pause takes here: the quickest of many, since others may take the core meanwhile.
TEST(Waiting, SpinsForTensOfMicrosecondsAtMost) {
  const int spins = patient_spins();
  ASSERT_GE(spins, 1);
  std::int64_t least_ns = INT64_MAX;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const std::int64_t begin_ns = now_ns();
    for (int i = 0; i < spins; ++i) pause_spin();
    least_ns = std::min(least_ns, now_ns() - begin_ns);
  }
  EXPECT_LT(least_ns, 50'000);
}

// Each waits for the other's counter, at times long enough to sleep; a raise that a sleeper misses never ends.
TEST(Waiting, EveryRaiseOfACounterWakesWhoSleeps) {
  constexpr std::uint64_t kTurns = 300;
  std::array<RisingCounter, 2> counters;
  std::thread other([&] {
    for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
      counters[0].wait_for(turn);
      counters[1].raise_to(turn);
    }
  });
  for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
    if (turn % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(turn));
    counters[0].raise_to(turn);
    counters[1].wait_for(turn);
  }
  other.join();
  EXPECT_EQ(counters[1].value(), kTurns);
}

}  // namespace
}  // namespace linkgauge
