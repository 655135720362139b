#include "transport/agreement.h"

#include <memory>

namespace linkgauge {

void wait_for_stream(DeviceRuntime& runtime, StreamHandle stream, const Group& group) {
  for (int polls = 1; !runtime.done(stream); ++polls) {
    if (polls % kPollsPerAbortCheck == 0) group.throw_if_aborted();
  }
}

int fresh_tags(const RankContext& context, const Progress& progress) {
  constexpr int kTagsEach = 8;
  constexpr int kLargest = 32'767;  // that every library takes
  std::shared_ptr<void>& kept = context.kept("mpi_tags");
  if (!kept) kept = std::make_shared<int>(0);
  auto& turn = *static_cast<int*>(kept.get());
  // A rank that failed in a case before its operation was connected has counted one less.
  turn = static_cast<int>(context.group->largest_of(turn, progress));
  return turn++ % ((kLargest + 1) / kTagsEach) * kTagsEach;
}

void one_of_a_node_first(const RankContext& context, const std::function<void()>& body) {
  std::string reason;
  in_turn(*context.group, 2, context.group->on_node().rank() == 0 ? 0 : 1, [&] {
    context.tell_compiling(true);
    reason = what_lacks(body);
    context.tell_compiling(false);
  });
  agree_or_throw(*context.group, reason);
}

}  // namespace linkgauge
