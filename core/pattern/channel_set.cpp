#include "pattern/channel_set.h"

#include <algorithm>

namespace linkgauge {

void ChannelSet::connect(Transport& transport, const RankContext& context, const CaseSpec& spec,
                         std::span<const Step> steps, const StepBuffers& buffers) {
  const int rank = context.rank();
  std::vector<Step> transfers;
  std::vector<Flow> flows;
  for (const Step& step : steps) {
    if (step.kind != StepKind::kTransfer) continue;
    transfers.push_back(step);
    flows.push_back({step.source, step.target, step.source == rank ? buffers.at(step.from) : nullptr,
                     step.target == rank ? buffers.at(step.into) : nullptr});
  }
  channels_ = transport.connect(context, spec, flows);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].source == rank) leaving_.push_back({channels_[i].get(), transfers[i]});
    if (transfers[i].target == rank) arriving_.push_back({channels_[i].get(), transfers[i]});
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
  for (const End& end : leaving_) end.channel->put(end.step.target_offset, end.step.source_offset, end.step.bytes);
}

void ChannelSet::get_all() {
  for (const End& end : arriving_) end.channel->get(end.step.target_offset, end.step.source_offset, end.step.bytes);
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
    for (const DeviceQueue& queue : channel->queues()) result.push_back(queue);
  }
  return result;
}

}  // namespace linkgauge
