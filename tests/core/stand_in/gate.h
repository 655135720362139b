// Where processes wait for each other, in memory that they share; zeros at first.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace stand_in {

// One that never comes must not keep a test for ever; on a loaded machine one under a sanitizer comes late.
constexpr auto kPatience = std::chrono::seconds(120);

struct Gate {
  std::atomic<int> arrived;
  std::atomic<int> turn;
  std::atomic<int> wrong;  // why nobody is to wait any more; 0: nothing

  // All of so many have come; false: one has not in time, or something is wrong.
  bool meet(int count) {
    constexpr auto kTurn = std::chrono::microseconds(50);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    const int now = turn;
    if (++arrived == count) {
      arrived = 0;
      ++turn;
      return true;
    }
    while (turn == now) {
      if (wrong != 0 || std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(kTurn);
    }
    return true;
  }
};
static_assert(std::atomic<int>::is_always_lock_free);

}  // namespace stand_in
