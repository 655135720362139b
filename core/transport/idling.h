// The turns of who waits by driving a library that has nothing to do.
#pragma once

#include <sched.h>

#include <string>

#include "errors.h"
#include "group/group.h"

namespace linkgauge {

class Idling {
 public:
  // Gives the core away once it has been idle for a while. Throws PeerError when a rank of `group` has given up.
  void turn(const Group& group, const char* awaited) {
    ++turns_;
    if (turns_ % kTurnsPerAbortCheck == 0 && group.aborted()) {
      throw PeerError("another rank gave up while this one waited for " + std::string(awaited));
    }
    if (turns_ >= kTurnsBeforeYield) sched_yield();
  }
  void over() { turns_ = 0; }

 private:
  static constexpr int kTurnsBeforeYield = 800;    // as the waits of a group
  static constexpr int kTurnsPerAbortCheck = 256;  // some 10 us
  int turns_ = 0;
};

}  // namespace linkgauge
