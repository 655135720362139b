// What ranks settle together, and how they wait for each other's words.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/errors.h"
#include "group/group.h"

namespace linkgauge {

// Collective: the reason of the first rank that has one ("" is none), behind that rank's name; "" where none has.
std::string first_reason(Group& group, const std::string& mine, const Progress& progress = {});

// Collective: throws Unsupported with first_reason() on every rank where there is one.
void agree_or_throw(Group& group, const std::string& reason, const Progress& progress = {});

// Runs `body`; what lacks for it here, memory or a possibility, in its words, "" where nothing does.
template <typename Body>
std::string what_lacks(const Body& body) {
  try {
    body();
  } catch (const MemoryError& error) {
    return error.what();
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "";
}

// Collective: `body` on the ranks whose turn is `mine`, below `turns`, while the others sleep. A rank that throws
// aborts the group, as its callers do: those that wait get PeerError.
void in_turn(Group& group, int turns, int mine, const std::function<void()>& body);

// Collective: `body` on all ranks, where it is `disturbed` by others' on one after the other: what is tried out on
// shared links must not depend on what others try out beside it. Where some rank's throws Unsupported or MemoryError,
// all throw Unsupported with its reason.
void by_turns(Group& group, bool disturbed, const std::function<void()>& body);

// Returns when `done` says so, which it is asked again and again: the one wait for what other ranks do. Throws
// PeerError with the reason of the rank that failed meanwhile.
template <typename Done>
void wait(const Group& group, const Progress& progress, const Done& done) {
  constexpr int kTurnsPerLook = 256;  // aborted() reads a shared line that is seldom written
  Waiter waiter(progress);
  for (int turn = 1; !done(); ++turn) {
    if (turn % kTurnsPerLook == 0) group.throw_if_aborted();
    waiter.pause();
  }
}

// Returns when *flag >= value. Throws PeerError when some rank has given up meanwhile.
void wait_for_flag(const std::atomic<std::uint64_t>& flag, std::uint64_t value, const Group& group,
                   const Progress& progress);

}  // namespace linkgauge
