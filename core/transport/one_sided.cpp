#include "transport/one_sided.h"

#include <map>
#include <string>
#include <utility>

#include "transport/agreement.h"

namespace linkgauge {

std::vector<FlowFlags> connect_flags(const RankContext& context, const std::vector<Flow>& flows) {
  Group& group = *context.group;
  std::vector<FlowFlags> result(flows.size());
  std::map<std::pair<int, int>, int> used;
  std::string reason;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const Flow& flow = flows[i];
    const int channel = used[{flow.source, flow.target}];
    used[{flow.source, flow.target}] += 2;
    if (flow.source == flow.target || (flow.source != group.rank() && flow.target != group.rank())) continue;
    if (channel + 1 >= Group::kFlagChannels) {
      reason = "more than " + std::to_string(Group::kFlagChannels / 2) + " flows from one rank to another";
      continue;
    }
    result[i].ready = group.flag(flow.source, flow.target, channel);
    result[i].done = group.flag(flow.source, flow.target, channel + 1);
    if (result[i].ready == nullptr || result[i].done == nullptr) {
      reason = "ranks " + std::to_string(flow.source) + " and " + std::to_string(flow.target) +
               " are on different nodes; this transport reaches memory of its own node only";
    }
  }
  agree_or_throw(group, reason);
  // No rank touches a counter before all have read it.
  for (FlowFlags& flags : result) {
    if (flags.ready == nullptr) continue;
    flags.ready_base = flags.ready->load();
    flags.done_base = flags.done->load();
  }
  group.barrier({});
  return result;
}

OneSidedChannel::OneSidedChannel(const RankContext& context, const FlowFlags& flags, Ends ends, Progress progress)
    : group_(context.group), flags_(flags), ends_(ends), progress_(std::move(progress)) {}

void OneSidedChannel::put(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) {
  ++messages_;
  if (ends_.sender_starts) {
    if (ends_.awaits_consumption && !alone()) {
      wait_for_flag(*flags_.ready, flags_.ready_base + messages_ - 1, *group_, progress_);
    }
    start(target_offset, source_offset, bytes);
  } else if (!alone()) {
    flags_.ready->store(flags_.ready_base + messages_, std::memory_order_release);
  }
}

void OneSidedChannel::get(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) {
  if (!alone()) ++messages_;
  if (ends_.sender_starts) return;
  if (!alone()) wait_for_flag(*flags_.ready, flags_.ready_base + messages_, *group_, progress_);
  start(target_offset, source_offset, bytes);
}

void OneSidedChannel::consumed() {
  if (!ends_.sender_starts || !ends_.awaits_consumption || alone()) return;
  flags_.ready->store(flags_.ready_base + messages_, std::memory_order_release);
}

void OneSidedChannel::complete(Completion) {
  // What is complete for the rank that started it is at the target, so local and remote completion are the same.
  if (starts()) {
    finish();
    if (!alone()) flags_.done->store(flags_.done_base + messages_, std::memory_order_release);
  } else {
    wait_for_flag(*flags_.done, flags_.done_base + messages_, *group_, progress_);
    if (ends_.target) arrived();
  }
}

}  // namespace linkgauge
