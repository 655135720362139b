#include "transport/memory/direct_copies.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"
#include "transport/agreement.h"
#include "transport/memory/far_counters.h"
#include "transport/memory/routed.h"

namespace linkgauge {
namespace {

// One leg, carried by the device of the rank that starts it.
class DirectChannel final : public OneSidedChannel {
 public:
  DirectChannel(const RankContext& context, const FlowFlags& flags, Ends ends, PeerBuffer target, PeerBuffer source)
      : OneSidedChannel(context, flags, ends, {}), target_(std::move(target)), source_(std::move(source)) {}

  void set_leg(std::unique_ptr<CopyLeg> leg) { leg_ = std::move(leg); }
  std::vector<DeviceQueue> queues() const override {
    if (leg_ == nullptr) return {};
    return {{leg_->stream(), leg_->device()}};
  }

 private:
  void start(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    leg_->copy(static_cast<std::byte*>(target_.data) + target_offset,
               static_cast<const std::byte*>(source_.data) + source_offset, bytes);
  }
  void finish() override { leg_->synchronize(); }

  PeerBuffer target_;
  PeerBuffer source_;
  std::unique_ptr<CopyLeg> leg_;  // nullptr at the end that does not start the copies
};

// Two legs with slots between them. Events order them: a slot is read once it is full, and filled again once it is
// read.
class RoutedChannel final : public OneSidedChannel {
 public:
  RoutedChannel(const RankContext& context, const FlowFlags& flags, Ends ends, const RouteShape& shape,
                PeerBuffer target, PeerBuffer source, Buffer slots)
      : OneSidedChannel(context, flags, ends, {}),
        runtime_(context.runtime),
        own_(context.device()),
        shape_(shape),
        target_(std::move(target)),
        source_(std::move(source)),
        slots_(std::move(slots)) {}
  ~RoutedChannel() override {
    first_.reset();
    second_.reset();
    for (const EventHandle event : filled_) runtime_->destroy_event(event);
    for (const EventHandle event : emptied_) runtime_->destroy_event(event);
  }

  void set_legs(std::unique_ptr<CopyLeg> first, std::unique_ptr<CopyLeg> second) {
    first_ = std::move(first);
    second_ = std::move(second);
    for (std::size_t slot = 0; slot < shape_.slots; ++slot) {
      filled_.push_back(runtime_->create_event(first_->device()));
      emptied_.push_back(runtime_->create_event(second_->device()));
    }
  }
  // This rank's own device first. Of both, since the first leg begins and the second ends.
  std::vector<DeviceQueue> queues() const override {
    if (first_ == nullptr) return {};
    const CopyLeg& near = first_->device() == own_ ? *first_ : *second_;
    const CopyLeg& far = first_->device() == own_ ? *second_ : *first_;
    return {{near.stream(), near.device()}, {far.stream(), far.device()}};
  }

 private:
  // The other device is made current for what is queued on it, once a chunk: that is part of what routing costs.
  void start(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    auto* const target = static_cast<std::byte*>(target_.data) + target_offset;
    const auto* const source = static_cast<const std::byte*>(source_.data) + source_offset;
    for (std::size_t done = 0; done < bytes; done += shape_.chunk_bytes) {
      const std::size_t chunk = std::min(shape_.chunk_bytes, bytes - done);
      const std::size_t slot = static_cast<std::size_t>(started_ % shape_.slots);
      std::byte* const place = slots_.at(slot * shape_.chunk_bytes);
      {
        const OtherDevice current(*runtime_, first_->device(), own_);
        if (started_ >= shape_.slots) runtime_->wait(first_->stream(), emptied_[slot]);
        first_->copy(place, source + done, chunk);
        runtime_->record(filled_[slot], first_->stream());
      }
      {
        const OtherDevice current(*runtime_, second_->device(), own_);
        runtime_->wait(second_->stream(), filled_[slot]);
        second_->copy(target + done, place, chunk);
        runtime_->record(emptied_[slot], second_->stream());
      }
      ++started_;
    }
  }
  void finish() override { second_->synchronize(); }  // the first leg has ended before it

  DeviceRuntime* runtime_;
  int own_;
  RouteShape shape_;
  PeerBuffer target_;
  PeerBuffer source_;
  Buffer slots_;
  std::unique_ptr<CopyLeg> first_;  // into a slot; nullptr at the end that does not start the copies
  std::unique_ptr<CopyLeg> second_;
  std::vector<EventHandle> filled_;   // by slot, on the first leg's stream
  std::vector<EventHandle> emptied_;  // on the second's
  std::uint64_t started_ = 0;         // chunks since the flow was connected
};

// Why this rank's copies cannot reach where they must, or "". Enables the access on the way.
std::string why_not_reached(const RankContext& context, int via, const Flows& flows, bool sender_starts) {
  std::string reason;
  const auto reach = [&](int device, int peer) {
    if (device == peer) return;
    const std::string refusal = context.runtime->peer_access(device, peer);
    if (reason.empty()) reason = refusal;
  };
  for (const Flow& flow : flows) {
    if ((sender_starts ? flow.source : flow.target) != context.rank()) continue;
    const int peer = sender_starts ? flow.target : flow.source;
    if (!on_one_node(context, context.rank(), peer)) continue;  // what its handle is opened with says
    const int peer_device = context.device_of_rank[static_cast<std::size_t>(peer)];
    if (via >= 0) reach(context.device(), via);
    reach(via >= 0 ? via : context.device(), peer_device);
  }
  return reason;
}

// The slots of each flow that this rank starts, in the memory of the device that the case goes through.
std::vector<Buffer> route_slots(const RankContext& context, const CaseSpec& spec, const Flows& flows,
                                bool sender_starts) {
  const RouteShape shape = route_shape(spec);
  std::vector<Buffer> slots(flows.size());
  agreeing(*context.group, {}, [&] {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if ((sender_starts ? flows[i].source : flows[i].target) != context.rank()) continue;
      slots[i] = Buffer(*context.runtime, spec.mechanism.via, MemoryKind::kDevice, shape.slots * shape.chunk_bytes);
    }
  });
  return slots;
}

PeerBuffer own_buffer(const Buffer& buffer) { return {buffer.data(), buffer.copy_device(), nullptr, buffer.size()}; }

}  // namespace

std::string why_not_across(const RankContext& context, const CaseSpec& spec) {
  const Mechanism& by = spec.mechanism;
  if (context.group->node_count() == 1) return "";
  if (!spec.places.source.options.fabric_handle) {
    return by.transport + " reaches devices of one node only; --handles fabric those of an NVLink domain of several";
  }
  if (!by.algorithm.empty()) return "algorithm " + by.algorithm + " is of one node; leave --algorithm out";
  if (by.via >= 0) return "what goes through a third device stays on one node; leave --via out";
  if (traits_of(spec.traffic.pattern).kind == PatternKind::kDevice)
    return std::string(to_string(spec.traffic.pattern)) + " reaches devices of one node only";
  if (spec.places.source.kind != MemoryKind::kDevice || spec.places.target.kind != MemoryKind::kDevice)
    return "between nodes " + by.transport + " reaches device memory only";
  return "";
}

std::vector<std::unique_ptr<Channel>> connect_one_sided(const RankContext& context, const CaseSpec& spec,
                                                        const Flows& flows, const OneSidedMeans& means) {
  const bool routed = spec.mechanism.via >= 0;
  const RouteShape shape = routed ? route_shape(spec) : RouteShape{};
  if (routed && shape.slots > 1) context.choose("chunk", std::to_string(shape.chunk_bytes) + " B");
  const std::string reason = why_not_reached(context, spec.mechanism.via, flows, means.sender_starts);
  if (means.needs_peer_access) agree_or_throw(*context.group, reason);
  std::vector<Buffer> slots;
  if (routed) slots = route_slots(context, spec, flows, means.sender_starts);
  const std::vector<PeerBuffer> peers =
      open_peers(context, flows, means.sender_starts ? ExposedEnd::kTarget : ExposedEnd::kSource,
                 routed ? spec.mechanism.via : context.device());
  const bool far = context.group->node_count() > 1 && spec.places.source.options.fabric_handle;
  const std::vector<FlowFlags> flags = connect_flags(context, flows, far);
  std::vector<std::unique_ptr<Counters>> counters(flows.size());
  if (far) counters = connect_far_counters(context, flows);
  std::vector<std::unique_ptr<Channel>> channels(flows.size());
  const auto make_channel = [&](std::size_t i) {
    const OneSidedChannel::Ends ends(context, spec, flows[i], means.sender_starts);
    if (!ends.source && !ends.target) return;
    const bool starts = ends.starts();
    const PeerBuffer target = ends.target ? own_buffer(*flows[i].target_buffer) : peers[i];
    const PeerBuffer source = ends.source ? own_buffer(*flows[i].source_buffer) : peers[i];
    const auto leg = [&](int device, const PeerBuffer& to, const PeerBuffer& from, std::size_t bytes) {
      const OtherDevice current(*context.runtime, device, context.device());
      return means.make_leg(device, to, from, bytes);
    };
    if (!routed) {
      auto channel = std::make_unique<DirectChannel>(context, flags[i], ends, target, source);
      channel->set_counters(std::move(counters[i]));
      if (starts) {
        channel->set_leg(leg(context.device(), target, source, flows[i].bytes));
      }
      channels[i] = std::move(channel);
      return;
    }
    const PeerBuffer slot = starts ? own_buffer(slots[i]) : PeerBuffer{};
    auto channel = std::make_unique<RoutedChannel>(context, flags[i], ends, shape, target, source, std::move(slots[i]));
    if (starts) {
      channel->set_legs(leg(ends.source ? context.device() : spec.mechanism.via, slot, source, shape.chunk_bytes),
                        leg(ends.source ? spec.mechanism.via : context.device(), target, slot, shape.chunk_bytes));
    }
    channels[i] = std::move(channel);
  };
  by_turns(context, means.tries_out, [&] {
    for (std::size_t i = 0; i < flows.size(); ++i) make_channel(i);
  });
  return channels;
}

}  // namespace linkgauge
