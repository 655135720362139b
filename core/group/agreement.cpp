#include "group/agreement.h"

#include <vector>

#include "errors.h"
#include "group/values.h"

namespace linkgauge {

std::string first_reason(Group& group, const std::string& mine, const Progress& progress) {
  if (group.agree(mine.empty(), progress)) return "";
  const std::vector<std::vector<std::byte>> all = group.exchange(to_bytes(mine.data(), mine.size()), progress);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::string found(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
    return "rank " + std::to_string(rank) + ": " + found;
  }
  return "";
}

void agree_or_throw(Group& group, const std::string& reason, const Progress& progress) {
  const std::string found = first_reason(group, reason, progress);
  if (!found.empty()) throw Unsupported(found);
}

void in_turn(Group& group, int turns, int mine, const std::function<void()>& body) {
  for (int turn = 0; turn < turns; ++turn) {
    if (turn == mine) body();
    if (turns > 1) group.barrier({}, Waiting::kSleep);
  }
}

void by_turns(Group& group, bool disturbed, const std::function<void()>& body) {
  std::string reason;
  const auto turn = [&] { reason = what_lacks(body); };
  if (disturbed) {
    in_turn(group, group.size(), group.rank(), turn);
  } else {
    turn();
  }
  agree_or_throw(group, reason);
}

void wait_for_flag(const std::atomic<std::uint64_t>& flag, std::uint64_t value, const Group& group,
                   const Progress& progress) {
  constexpr int kTurnsPerLook = 256;  // aborted() reads a shared line that is seldom written
  Waiter waiter(progress);
  for (int turn = 1; flag.load(std::memory_order_acquire) < value; ++turn) {
    if (turn % kTurnsPerLook == 0) group.throw_if_aborted();
    waiter.pause();
  }
}

}  // namespace linkgauge
