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

// Two legs with slots between them. Events order them: a slot is read once it is full, and filled again once it is
// read.
class Route : NotCopied {
 public:
  Route(DeviceRuntime& runtime, int own, const RouteShape& shape, PeerBuffer target, PeerBuffer source, Buffer slots,
        std::unique_ptr<CopyLeg> first, std::unique_ptr<CopyLeg> second)
      : runtime_(&runtime),
        own_(own),
        shape_(shape),
        target_(std::move(target)),
        source_(std::move(source)),
        slots_(std::move(slots)),
        first_(std::move(first)),
        second_(std::move(second)) {
    for (std::size_t slot = 0; slot < shape_.slots; ++slot) {
      filled_.emplace_back(*runtime_, first_->device());
      emptied_.emplace_back(*runtime_, second_->device());
    }
  }

  // Queues the first chunk of these bytes and returns its length. The other device is made current for what is queued
  // on it, once a chunk: that is part of what routing costs.
  std::size_t start(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) {
    const std::size_t chunk = std::min(shape_.chunk_bytes, bytes);
    const std::size_t slot = static_cast<std::size_t>(started_ % shape_.slots);
    std::byte* const place = slots_.at(slot * shape_.chunk_bytes);
    {
      const OtherDevice current(*runtime_, first_->device(), own_);
      if (started_ >= shape_.slots) runtime_->wait(first_->stream(), emptied_[slot].handle());
      first_->copy(place, static_cast<const std::byte*>(source_.data) + source_offset, chunk);
      runtime_->record(filled_[slot].handle(), first_->stream());
    }
    {
      const OtherDevice current(*runtime_, second_->device(), own_);
      runtime_->wait(second_->stream(), filled_[slot].handle());
      second_->copy(static_cast<std::byte*>(target_.data) + target_offset, place, chunk);
      runtime_->record(emptied_[slot].handle(), second_->stream());
    }
    ++started_;
    return chunk;
  }
  void synchronize() { second_->synchronize(); }  // the first leg has ended before it
  // This rank's own device first. Of both, since the first leg begins and the second ends.
  void add_queues(std::vector<DeviceQueue>& queues) const {
    const CopyLeg& near = first_->device() == own_ ? *first_ : *second_;
    const CopyLeg& far = first_->device() == own_ ? *second_ : *first_;
    queues.push_back({near.stream(), near.device()});
    queues.push_back({far.stream(), far.device()});
  }

 private:
  DeviceRuntime* runtime_;
  int own_;
  RouteShape shape_;
  PeerBuffer target_;  // as this route's devices reach them
  PeerBuffer source_;
  Buffer slots_;
  std::vector<Event> filled_;       // by slot, on the first leg's stream
  std::vector<Event> emptied_;      // on the second's
  std::unique_ptr<CopyLeg> first_;  // into a slot
  std::unique_ptr<CopyLeg> second_;
  std::uint64_t started_ = 0;  // chunks since the flow was connected
};

// A message in equal parts, one for each way: directly where there is such a leg, and by each route. At the end that
// does not start the copies there is neither.
class CopyChannel final : public OneSidedChannel {
 public:
  CopyChannel(const RankContext& context, const FlowFlags& flags, Ends ends, PeerBuffer target, PeerBuffer source)
      : OneSidedChannel(context, flags, ends, {}), target_(std::move(target)), source_(std::move(source)) {}

  void set_direct(std::unique_ptr<CopyLeg> leg) { direct_ = std::move(leg); }
  void add_route(std::unique_ptr<Route> route) { routes_.push_back(std::move(route)); }
  std::vector<DeviceQueue> queues() const override {
    std::vector<DeviceQueue> result;
    if (direct_ != nullptr) result.push_back({direct_->stream(), direct_->device()});
    for (const auto& route : routes_) route->add_queues(result);
    return result;
  }

 private:
  static constexpr std::size_t kAligned = 256;  // parts begin where the widest words can

  void start_copy(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    const std::size_t ways = routes_.size() + (direct_ != nullptr ? 1 : 0);
    const std::size_t part = ways == 1 ? bytes : (bytes + ways * kAligned - 1) / (ways * kAligned) * kAligned;
    const auto end_of = [&](std::size_t way) { return std::min(bytes, (way + 1) * part); };
    std::size_t way = 0;
    if (direct_ != nullptr) {
      direct_->copy(static_cast<std::byte*>(target_.data) + target_offset,
                    static_cast<const std::byte*>(source_.data) + source_offset, end_of(way++));
    }
    if (routes_.empty()) return;
    std::vector<std::size_t> done;
    for (std::size_t i = 0; i < routes_.size(); ++i) done.push_back(std::min(bytes, (way + i) * part));
    // A chunk of each route by turns, so that none waits until all of another is queued.
    for (bool more = true; more;) {
      more = false;
      for (std::size_t i = 0; i < routes_.size(); ++i) {
        if (done[i] == end_of(way + i)) continue;
        done[i] += routes_[i]->start(target_offset + done[i], source_offset + done[i], end_of(way + i) - done[i]);
        more = true;
      }
    }
  }
  void finish() override {
    if (direct_ != nullptr) direct_->synchronize();
    for (const auto& route : routes_) route->synchronize();
  }

  PeerBuffer target_;  // as this rank's device reaches them
  PeerBuffer source_;
  std::unique_ptr<CopyLeg> direct_;
  std::vector<std::unique_ptr<Route>> routes_;
};

// Why this rank's copies cannot reach where they must, or "". Enables the access on the way.
std::string why_not_reached(const RankContext& context, const std::vector<int>& between, bool direct,
                            const Flows& flows, bool sender_starts) {
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
    if (direct) reach(context.device(), peer_device);
    for (const int via : between) {
      reach(context.device(), via);
      reach(via, peer_device);
    }
  }
  return reason;
}

// By flow the slots of what this rank starts, in the memory of each device that the case goes through.
std::vector<std::vector<Buffer>> route_slots(const RankContext& context, const CaseSpec& spec, const Flows& flows,
                                             const std::vector<int>& between, bool sender_starts) {
  const RouteShape shape = route_shape(spec);
  std::vector<std::vector<Buffer>> slots(flows.size());
  agreeing(*context.group, {}, [&] {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if ((sender_starts ? flows[i].source : flows[i].target) != context.rank()) continue;
      for (const int via : between)
        slots[i].emplace_back(*context.runtime, via, MemoryKind::kDevice, shape.slots * shape.chunk_bytes);
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
  const std::vector<int> between = devices_between(context, spec.mechanism);
  const bool direct = !is_routed(spec.mechanism) || routing_of(spec.mechanism) == Routing::kStriped;
  const RouteShape shape = between.empty() ? RouteShape{} : route_shape(spec);
  if (shape.slots > 1) context.choose("chunk", std::to_string(shape.chunk_bytes) + " B");
  const std::string reason = why_not_reached(context, between, direct, flows, means.sender_starts);
  if (means.needs_peer_access) agree_or_throw(*context.group, reason);
  std::vector<std::vector<Buffer>> slots;
  if (!between.empty()) slots = route_slots(context, spec, flows, between, means.sender_starts);
  // A peer's buffer is opened on each device that reaches it: this rank's own, and those between.
  const ExposedEnd exposed = means.sender_starts ? ExposedEnd::kTarget : ExposedEnd::kSource;
  const std::vector<PeerBuffer> peers =
      open_peers(context, flows, exposed, direct ? context.device() : between.front());
  std::vector<std::vector<PeerBuffer>> peers_between;
  for (const int via : between) {
    peers_between.push_back(direct ? open_peers(context, flows, exposed, via) : peers);
  }
  const bool far = context.group->node_count() > 1 && spec.places.source.options.fabric_handle;
  const std::vector<FlowFlags> flags = connect_flags(context, flows, far);
  std::vector<std::unique_ptr<Counters>> counters(flows.size());
  if (far) counters = connect_far_counters(context, flows);
  std::vector<std::unique_ptr<Channel>> channels(flows.size());
  const auto make_channel = [&](std::size_t i) {
    const OneSidedChannel::Ends ends(context, spec, flows[i], means.sender_starts);
    if (!ends.source && !ends.target) return;
    const bool starts = ends.starts();
    const auto target_by = [&](const std::vector<PeerBuffer>& theirs) {
      return ends.target ? own_buffer(*flows[i].target_buffer) : theirs[i];
    };
    const auto source_by = [&](const std::vector<PeerBuffer>& theirs) {
      return ends.source ? own_buffer(*flows[i].source_buffer) : theirs[i];
    };
    const PeerBuffer target = target_by(peers);
    const PeerBuffer source = source_by(peers);
    const auto leg = [&](int device, const PeerBuffer& to, const PeerBuffer& from, std::size_t bytes) {
      const OtherDevice current(*context.runtime, device, context.device());
      return means.make_leg(device, to, from, bytes);
    };
    auto channel = std::make_unique<CopyChannel>(context, flags[i], ends, target, source);
    channel->set_counters(std::move(counters[i]));
    if (starts && direct) channel->set_direct(leg(context.device(), target, source, flows[i].bytes));
    for (std::size_t k = 0; starts && k < between.size(); ++k) {
      const PeerBuffer slot = own_buffer(slots[i][k]);
      const PeerBuffer to = target_by(peers_between[k]);
      const PeerBuffer from = source_by(peers_between[k]);
      auto first = leg(ends.source ? context.device() : between[k], slot, from, shape.chunk_bytes);
      auto second = leg(ends.source ? between[k] : context.device(), to, slot, shape.chunk_bytes);
      channel->add_route(std::make_unique<Route>(*context.runtime, context.device(), shape, to, from,
                                                 std::move(slots[i][k]), std::move(first), std::move(second)));
    }
    channels[i] = std::move(channel);
  };
  by_turns(context, means.tries_out, [&] {
    for (std::size_t i = 0; i < flows.size(); ++i) make_channel(i);
  });
  return channels;
}

}  // namespace linkgauge
