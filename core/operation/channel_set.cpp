#include "operation/channel_set.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace linkgauge {

void ChannelSet::connect(Transport& transport, const RankContext& context, const CaseSpec& spec,
                         std::span<const Step> steps, const StepBuffers& buffers) {
  const int rank = context.rank();
  Flows flows;
  std::map<std::tuple<int, int, StepMemory, StepMemory, int>, std::size_t> flow_of;
  std::vector<std::pair<std::size_t, Step>> transfers;
  for (const Step& step : steps) {
    if (step.kind != StepKind::kTransfer) continue;
    const auto [known, is_new] =
        flow_of.try_emplace({step.source, step.target, step.from, step.into, step.queue}, flows.size());
    transfers.emplace_back(known->second, step);
    if (is_new) {
      flows.add({step.source, step.target, step.source == rank ? buffers.at(step.from) : nullptr,
                 step.target == rank ? buffers.at(step.into) : nullptr, step.bytes, 1});
    } else {
      Flow& flow = flows[known->second];
      flow.bytes = std::max(flow.bytes, step.bytes);
      ++flow.messages;
    }
  }
  channels_ = transport.connect(context, spec, flows);
  for (const auto& [number, step] : transfers) {
    if (step.source == rank) leaving_.push_back({channels_[number].get(), step});
    if (step.target == rank) arriving_.push_back({channels_[number].get(), step});
  }
  std::map<StreamHandle, int> messages_in;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    messages_ = std::max(messages_, flows[i].messages);
    for (const DeviceQueue& queue : channels_[i]->queues())
      messages_ = std::max(messages_, messages_in[queue.stream] += flows[i].messages);
  }
  for (const auto& channel : channels_) completing_.push_back(channel.get());
  std::stable_partition(completing_.begin(), completing_.end(),
                        [](const Channel* channel) { return channel->completes_first(); });
}

void ChannelSet::disconnect() noexcept {
  leaving_.clear();
  arriving_.clear();
  completing_.clear();
  channels_.clear();
}

void ChannelSet::exchange_all(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (const End& end : leaving_) end.channel->put(end.step.target_offset, end.step.source_offset, end.step.bytes);
    for (const End& end : arriving_) end.channel->get(end.step.target_offset, end.step.source_offset, end.step.bytes);
  }
}

void ChannelSet::complete_all(Completion completion) {
  for (Channel* channel : completing_) channel->complete(completion);
}

void ChannelSet::consumed_all() {
  for (const End& end : arriving_) end.channel->consumed();
}

void ChannelSet::put_one_now() {
  const End& end = leaving_.front();
  end.channel->put_now(end.step.target_offset, end.step.source_offset, end.step.bytes);
}

void ChannelSet::get_one_now() {
  const End& end = arriving_.front();
  end.channel->get_now(end.step.target_offset, end.step.source_offset, end.step.bytes);
}

std::vector<DeviceQueue> ChannelSet::queues() const {
  std::vector<DeviceQueue> result;
  for (const auto& channel : channels_) {
    for (const DeviceQueue& queue : channel->queues()) {
      const auto same = [&](const DeviceQueue& known) { return known.stream == queue.stream; };
      if (std::none_of(result.begin(), result.end(), same)) result.push_back(queue);  // channels may share it
    }
  }
  return result;
}

}  // namespace linkgauge
