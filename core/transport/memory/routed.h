// Copies through a third device, which the case names (`via`): from the source into a slot in that device's memory, and
// from there to the target. One slot and whole messages are store and forward, as Li et al. (Tartan) routed between
// GPUs without a link; several slots and small chunks are a pipeline, which the narrower of the two links bounds.
//
// The rank that starts a flow's copies carries both legs: it holds the slots, and a stream on each of the two devices.
#pragma once

#include <cstddef>
#include <string>

#include "transport/transport.h"

namespace linkgauge {

// "" or why the case's copies cannot go through the device that it names, or why it names a way of routing without one.
std::string why_not_routed(const RankContext& context, const CaseSpec& spec);
// The words of `variant` that are ways of routing.
bool is_routing(const std::string& variant);

struct RouteShape {
  std::size_t chunk_bytes = 0;  // of a slot
  std::size_t slots = 1;
};
// Of a case whose `via` is a device.
RouteShape route_shape(const CaseSpec& spec);
// Commands that a message puts into one queue: a wait, a copy and a record for each chunk.
int routed_commands(const CaseSpec& spec);

}  // namespace linkgauge
