#include "transport/memory/routed.h"

#include <algorithm>

#include "base/patterns.h"
#include "traffic/layout.h"

namespace linkgauge {
namespace {

constexpr std::size_t kSlots = 4;
// A sixteenth of the message keeps filling and draining the pipeline small; below the least, starting a copy costs more
// than carrying it, and above the most nothing is gained (4 MiB take 10 us at 400 GB/s).
constexpr std::size_t kChunksPerMessage = 16;
constexpr std::size_t kLeastChunkBytes = std::size_t{256} << 10;
constexpr std::size_t kMostChunkBytes = std::size_t{4} << 20;
constexpr int kCommandsPerChunk = 3;
constexpr std::int64_t kMostHeldCommands = 1000;  // a CUDA queue takes 1024, and events and the gate are among them

}  // namespace

Routing routing_of(const Mechanism& by) {
  return Variants<Routing>{by.transport, kRoutingWords}.read(by.variant).value_or(Routing::kNone);
}

bool is_routed(const Mechanism& by) { return by.via >= 0 || routing_of(by) == Routing::kStriped; }

std::vector<int> devices_between(const RankContext& context, const Mechanism& by) {
  if (by.via >= 0) return {by.via};
  std::vector<int> found;
  if (routing_of(by) != Routing::kStriped) return found;
  const std::vector<int>& ends = context.device_of_rank;
  for (int device = 0; device < context.runtime->count(); ++device) {
    if (std::find(ends.begin(), ends.end(), device) == ends.end()) found.push_back(device);
  }
  return found;
}

RouteShape route_shape(const CaseSpec& spec) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(1, spec.traffic.size_bytes));
  const Routing routing = routing_of(spec.mechanism);
  if (routing != Routing::kPipelined && routing != Routing::kStriped) return {size, 1};
  const std::size_t chosen = std::clamp(size / kChunksPerMessage, kLeastChunkBytes, kMostChunkBytes);
  const std::size_t chunk =
      spec.mechanism.chunk_bytes > 0 ? static_cast<std::size_t>(spec.mechanism.chunk_bytes) : chosen;
  return {std::min(size, chunk), kSlots};
}

int routed_commands(const CaseSpec& spec) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(1, spec.traffic.size_bytes));
  const std::size_t chunk = route_shape(spec).chunk_bytes;
  const std::size_t chunks = std::min((size + chunk - 1) / chunk, std::size_t{1} << 20);
  return static_cast<int>(chunks) * kCommandsPerChunk;
}

std::string why_not_routed(const RankContext& context, const CaseSpec& spec) {
  const Mechanism& by = spec.mechanism;
  const bool striped = routing_of(by) == Routing::kStriped;
  if (by.via < 0 && !striped) {
    if (routing_of(by) == Routing::kNone) return "";
    return by.variant + " is a way of routing through a third device; name that device with --via";
  }
  if (by.via >= 0 && striped) return "striped goes through every device that is no end; leave --via out";
  const std::string via = "device " + std::to_string(by.via);
  if (by.via >= context.runtime->count()) {
    return "there is no " + via + " to go through; there are " + std::to_string(context.runtime->count()) +
           ", numbered from 0";
  }
  if (!traits_of(spec.traffic.pattern).routed) {
    return std::string(to_string(spec.traffic.pattern)) +
           " is not routed; pingpong, unidirectional, bidirectional and ring_shift are. Leave " +
           (striped ? "--variant" : "--via") + " out";
  }
  if (context.size() < 2) return "a copy inside one device goes through no other; leave --via out";
  if (striped && devices_between(context, by).empty()) {
    return "striped needs a device that is no end: here are " + std::to_string(context.runtime->count()) +
           " devices, and all take part";
  }
  for (const int device : context.device_of_rank) {
    if (device == by.via) return via + " is an end of the copy itself; --via names a third device";
  }
  for (const MemoryKind kind : {spec.places.source.kind, spec.places.target.kind}) {
    if (kind != MemoryKind::kDevice) {
      return "routed copies are between devices' memory; the case has " + std::string(to_string(kind)) + " memory";
    }
  }
  const std::int64_t held = std::int64_t{routed_commands(spec)} * std::max(1, spec.traffic.window);
  if (spec.timing.cadence == Cadence::kGated && held > kMostHeldCommands) {
    return "gated holds an operation's " + std::to_string(held) + " commands in one queue, which takes " +
           std::to_string(kMostHeldCommands) + "; take a larger --chunk, a smaller --window or the cadence streaming";
  }
  return "";
}

}  // namespace linkgauge
