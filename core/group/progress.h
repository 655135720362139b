// Progress while a rank's thread is held up in a blocking call of a library that knows nothing of what is under way.
#pragma once

#include <atomic>
#include <functional>

#include "base/joined_threads.h"
#include "base/not_copied.h"
#include "group/group.h"

namespace linkgauge {

// A Progress that another thread may call while the rank's own does not: `begin` first, then `advance` again and again.
struct ProgressOfAnyThread {
  std::function<void()> begin;
  std::function<void()> advance;
  void operator()() const { advance(); }
};

// As long as it lives a thread of its own drives `progress`, where that is one of any thread; it costs some 50 us then,
// and nothing otherwise.
class WhileHeldUp : NotCopied {
 public:
  explicit WhileHeldUp(const Progress& progress);
  ~WhileHeldUp() { over_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> over_{false};
  JoinedThreads thread_;
};

}  // namespace linkgauge
