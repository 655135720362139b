// Copies through a third device, which the case names (`via`): from the source into a slot in that device's memory, and
// from there to the target. One slot and whole messages are store and forward, as Li et al. (Tartan) routed between
// GPUs without a link; several slots and small chunks are a pipeline, which the narrower of the two links bounds.
// Striped is a message in equal parts: one direct, and one pipelined through each device that is no end of the case.
//
// The rank that starts a flow's copies carries both legs: it holds the slots, and a stream on each of the two devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/options.h"
#include "transport/transport.h"

namespace linkgauge {

enum class Routing : std::uint8_t { kNone, kStoreAndForward, kPipelined, kStriped };
inline constexpr VariantWord<Routing> kRoutingWords[] = {
    {"store_and_forward", Routing::kStoreAndForward},
    {"pipelined", Routing::kPipelined},
    {"striped", Routing::kStriped},
};
// Of any case: kNone where its variant is another.
Routing routing_of(const Mechanism& by);
// Whether copies go through another device.
bool is_routed(const Mechanism& by);
// The devices that they go through: the one that the case names, or of striped all that are no end; else none.
std::vector<int> devices_between(const RankContext& context, const Mechanism& by);

// "" or why the case's copies cannot go through the device that it names, or why it names a way of routing without one.
std::string why_not_routed(const RankContext& context, const CaseSpec& spec);
struct RouteShape {
  std::size_t chunk_bytes = 0;  // of a slot
  std::size_t slots = 1;
};
// Of a case that is routed.
RouteShape route_shape(const CaseSpec& spec);
// Commands that a message puts into one queue: a wait, a copy and a record for each chunk.
int routed_commands(const CaseSpec& spec);

}  // namespace linkgauge
