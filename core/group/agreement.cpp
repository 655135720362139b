#include "group/agreement.h"

#include <vector>

#include "base/errors.h"
#include "base/wire.h"

namespace linkgauge {

std::string first_reason(Group& group, const std::string& mine, const Progress& progress) {
  if (group.agree(mine.empty(), progress)) return "";
  const std::vector<Bytes> all = group.exchange(to_bytes(mine.data(), mine.size()), progress);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) return "rank " + std::to_string(rank) + ": " + text_of(all[rank]);
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
  wait(group, progress, [&] { return flag.load(std::memory_order_acquire) >= value; });
}

}  // namespace linkgauge
