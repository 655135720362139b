// The turns of who waits by driving a library that has nothing to do.
#pragma once

#include "base/waiting.h"
#include "group/group.h"

namespace linkgauge {

class Idling {
 public:
  // Gives the core away once it has been idle for a while. Throws PeerError when a rank of `group` has failed.
  void turn(const Group& group) {
    ++turns_;
    if (turns_ % kTurnsPerAbortCheck == 0) group.throw_if_aborted();
    if (turns_ >= kTurnsBeforeYield) give_way();
  }
  void over() { turns_ = 0; }
  // Until over(): moves() drives the library, and says whether anything moved.
  template <typename Moves, typename Over>
  void drive(const Group& group, const Moves& moves, const Over& is_over) {
    while (!is_over()) {
      if (moves()) {
        over();
      } else {
        turn(group);
      }
    }
    over();
  }

 private:
  static constexpr int kTurnsBeforeYield = 800;    // as the waits of a group
  static constexpr int kTurnsPerAbortCheck = 256;  // some 10 us
  int turns_ = 0;
};

}  // namespace linkgauge
