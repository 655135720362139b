#include "pattern/channel_set.h"

#include <algorithm>

namespace linkgauge {

void ChannelSet::connect(Transport& transport, const RankContext& context, const CaseSpec& spec,
                         const std::vector<PlannedFlow>& flows, const Buffer* source, const Buffer* target) {
  const int rank = context.rank();
  std::vector<Flow> ends;
  ends.reserve(flows.size());
  for (const PlannedFlow& flow : flows) {
    ends.push_back(
        {flow.source, flow.target, flow.source == rank ? source : nullptr, flow.target == rank ? target : nullptr});
  }
  channels_ = transport.connect(context, spec, ends);
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (channels_[i] == nullptr) continue;
    if (flows[i].source == rank) leaving_.push_back({channels_[i].get(), flows[i]});
    if (flows[i].target == rank) arriving_.push_back({channels_[i].get(), flows[i]});
    completing_.push_back(channels_[i].get());
  }
  std::stable_partition(completing_.begin(), completing_.end(),
                        [](const Channel* channel) { return channel->completes_first(); });
}

void ChannelSet::disconnect() noexcept {
  leaving_.clear();
  arriving_.clear();
  completing_.clear();
  channels_.clear();
}

void ChannelSet::put_all() {
  for (const End& end : leaving_) end.channel->put(end.flow.target_offset, end.flow.source_offset, end.flow.bytes);
}

void ChannelSet::get_all() {
  for (const End& end : arriving_) end.channel->get(end.flow.target_offset, end.flow.source_offset, end.flow.bytes);
}

void ChannelSet::complete_all(Completion completion) {
  for (Channel* channel : completing_) channel->complete(completion);
}

void ChannelSet::consumed_all() {
  for (const End& end : arriving_) end.channel->consumed();
}

void ChannelSet::put_one_now() {
  const End& end = leaving_.front();
  end.channel->put_now(end.flow.target_offset, end.flow.source_offset, end.flow.bytes);
}

void ChannelSet::get_one_now() {
  const End& end = arriving_.front();
  end.channel->get_now(end.flow.target_offset, end.flow.source_offset, end.flow.bytes);
}

std::vector<DeviceQueue> ChannelSet::queues() const {
  std::vector<DeviceQueue> result;
  for (const auto& channel : channels_) {
    if (channel == nullptr) continue;
    for (const DeviceQueue& queue : channel->queues()) result.push_back(queue);
  }
  return result;
}

}  // namespace linkgauge
