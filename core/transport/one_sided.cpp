#include "transport/one_sided.h"

#include <string>
#include <utility>

#include "base/errors.h"
#include "traffic/layout.h"
#include "transport/agreement.h"

namespace linkgauge {

bool on_one_node(const RankContext& context, int one, int other) {
  return context.group->node_count() == 1 || one == other || context.group->flag(one, other, 0) != nullptr;
}

std::vector<FlowFlags> connect_flags(const RankContext& context, const Flows& flows, bool far) {
  Group& group = *context.group;
  std::vector<FlowFlags> result(flows.size());
  std::string reason;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const Flow& flow = flows[i];
    const int channel = 2 * flow.ordinal;
    if (flow.source == flow.target || !flow.ends_at(group.rank())) continue;
    if (far && !on_one_node(context, flow.source, flow.target)) continue;
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
  group.barrier({}, Waiting::kSleep);
  return result;
}

OneSidedChannel::Ends::Ends(const RankContext& context, const CaseSpec& spec, const Flow& flow, bool by_sender)
    : source(flow.source == context.rank()),
      target(flow.target == context.rank()),
      sender_starts(by_sender),
      awaits_consumption(reads_what_arrives(spec.traffic.pattern)) {}

OneSidedChannel::OneSidedChannel(const RankContext& context, const FlowFlags& flags, Ends ends, Progress progress)
    : group_(context.group), flags_(flags), ends_(ends), progress_(std::move(progress)) {}

void OneSidedChannel::put(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) {
  ++messages_;
  if (ends_.sender_starts) {
    if (ends_.awaits_consumption && !alone()) await(messages_ - 1);
    start_copy(target_offset, source_offset, bytes);
  } else if (!alone()) {
    tell(messages_);
  }
}

void OneSidedChannel::get(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) {
  if (!alone()) ++messages_;
  if (ends_.sender_starts) return;
  if (!alone()) await(messages_);
  start_copy(target_offset, source_offset, bytes);
}

void OneSidedChannel::consumed() {
  if (ends_.sender_starts && ends_.awaits_consumption && !alone()) tell(messages_);
}

void OneSidedChannel::tell(std::uint64_t messages) {
  if (counters_) return counters_->tell(messages);
  std::atomic<std::uint64_t>* const flag = starts() ? flags_.done : flags_.ready;
  flag->store((starts() ? flags_.done_base : flags_.ready_base) + messages, std::memory_order_release);
}

void OneSidedChannel::await(std::uint64_t messages) {
  if (counters_) return counters_->await(messages);
  const std::atomic<std::uint64_t>& flag = starts() ? *flags_.ready : *flags_.done;
  wait_for_flag(flag, (starts() ? flags_.ready_base : flags_.done_base) + messages, *group_, progress_);
}

void OneSidedChannel::complete(Completion) {
  // What is complete for the rank that started it is at the target, so local and remote completion are the same.
  if (starts()) {
    finish();
    if (!alone()) tell(messages_);
  } else {
    await(messages_);
    if (ends_.target) arrived();
  }
}

}  // namespace linkgauge
