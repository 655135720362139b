#include "transport/staging/channel.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace linkgauge {

void StagingEngine::advance() {
  for (StagingChannel* channel : channels) channel->advance();
}

StagingChannel::Message StagingChannel::Queue::take(std::size_t chunk_bytes) {
  const Message& message = messages[static_cast<std::size_t>(next % messages.size())];
  const std::size_t bytes = std::min(chunk_bytes, message.bytes - within);
  const Message chunk{message.offset + within, bytes};
  within += bytes;
  if (within == message.bytes) {
    ++next;
    within = 0;
  }
  return chunk;
}

StagingChannel::StagingChannel(const RankContext& context, const Flow& flow, const StagingShape& shape,
                               const Slots& slots, std::shared_ptr<StagingEngine> engine)
    : runtime_(context.runtime),
      group_(context.group),
      source_(flow.source_buffer),
      target_(flow.target_buffer),
      sends_(flow.source == context.rank()),
      receives_(flow.target == context.rank()),
      shape_(shape),
      slots_(slots),
      engine_(std::move(engine)),
      slot_bytes_(shape.slots),
      arriving_(shape.slots) {
  const int device = context.device();
  if (sends_) {
    down_ = CopyStream(context, device);
    outgoing_.messages.resize(shape.queue);
    for (std::uint64_t slot = 0; slot < shape.slots; ++slot) down_events_.emplace_back(*runtime_, device);
  }
  if (receives_) {
    up_ = CopyStream(context, device);
    incoming_.messages.resize(shape.queue);
    for (std::uint64_t slot = 0; slot < shape.slots; ++slot) up_events_.emplace_back(*runtime_, device);
  }
  engine_->channels.push_back(this);
}

StagingChannel::~StagingChannel() { std::erase(engine_->channels, this); }

HostLegEnds StagingChannel::leg_ends() const {
  return {sends_, receives_, slots_.source, slots_.target, shape_.chunk_bytes, shape_.slots};
}

void StagingChannel::put(std::size_t, std::size_t source_offset, std::size_t bytes) {
  if (outgoing_.full()) {
    wait_until([this] { return !outgoing_.full(); });
  }
  outgoing_.push({source_offset, bytes});
  advance_source();
}

void StagingChannel::get(std::size_t target_offset, std::size_t, std::size_t bytes) {
  if (incoming_.full()) {
    wait_until([this] { return !incoming_.full(); });
  }
  incoming_.push({target_offset, bytes});
  advance_target();
}

void StagingChannel::complete(Completion completion) {
  wait_until([this] { return source_drained() && target_drained(); });
  if (receives_) {
    up_.synchronize();
    cleared_ = uploaded_;
  }
  if (completion == Completion::kLocal || (sends_ && receives_)) return;
  if (receives_) {
    leg_->acknowledge();
  } else {
    leg_->expect_acknowledgement();
    wait_until([this] { return leg_->acknowledged(); });
  }
}

void StagingChannel::advance() {
  if (sends_) advance_source();
  if (receives_) advance_target();
}

void StagingChannel::advance_source() {
  // The next chunks' copies are queued before this one is waited for, so that the copy engine does not pause.
  while (!outgoing_.empty() && copied_ - freed_ < shape_.slots) {
    const Message chunk = outgoing_.take(shape_.chunk_bytes);
    const std::size_t slot = slot_of(copied_);
    runtime_->copy_async(slots_.source + slot * shape_.chunk_bytes, -1, source_->at(chunk.offset),
                         source_->copy_device(), chunk.bytes, down_.handle());
    runtime_->record(down_events_[slot].handle(), down_.handle());
    slot_bytes_[slot] = chunk.bytes;
    ++copied_;
  }
  if (sent_ < copied_) {
    const std::size_t slot = slot_of(sent_);
    runtime_->synchronize_event(down_events_[slot].handle());
    leg_->send(sent_, slot_bytes_[slot]);
    ++sent_;
  }
  while (freed_ < sent_ && leg_->sent(freed_)) ++freed_;
}

void StagingChannel::advance_target() {
  while (!incoming_.empty()) {
    if (posted_ - cleared_ == shape_.slots) {
      if (cleared_ == uploaded_) break;
      runtime_->synchronize_event(up_events_[slot_of(cleared_)].handle());
      ++cleared_;
    }
    const Message chunk = incoming_.take(shape_.chunk_bytes);
    arriving_[slot_of(posted_)] = chunk;
    leg_->expect(posted_, chunk.bytes);
    ++posted_;
  }
  if (uploaded_ < posted_ && leg_->received(uploaded_)) {
    const std::size_t slot = slot_of(uploaded_);
    const Message& chunk = arriving_[slot];
    runtime_->copy_async(target_->at(chunk.offset), target_->copy_device(), slots_.target + slot * shape_.chunk_bytes,
                         -1, chunk.bytes, up_.handle());
    runtime_->record(up_events_[slot].handle(), up_.handle());
    ++uploaded_;
  }
}

template <typename Condition>
void StagingChannel::wait_until(const Condition& condition) {
  constexpr int kTurnsPerLook = 256;
  Waiter waiter(no_progress_);
  for (int turn = 1; !condition(); ++turn) {
    engine_->advance();
    if (condition()) return;
    if (turn % kTurnsPerLook == 0) group_->throw_if_aborted();
    waiter.pause();
  }
}

}  // namespace linkgauge
