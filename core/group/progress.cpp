#include "group/progress.h"

#include <chrono>
#include <thread>

namespace linkgauge {

WhileHeldUp::WhileHeldUp(const Progress& progress) {
  const auto* const elsewhere = progress.target<ProgressOfAnyThread>();
  if (elsewhere == nullptr) return;
  thread_.start([this, elsewhere] {
    constexpr int kTurnsBeforeSleep = 200;
    elsewhere->begin();
    for (int turn = 0; !over_.load(std::memory_order_acquire); ++turn) {
      elsewhere->advance();
      if (turn < kTurnsBeforeSleep) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  });
}

}  // namespace linkgauge
