// Channels of the transports that copy between memories themselves: copies that the rank at one end starts alone,
// direct or through a third device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/copy_leg.h"
#include "transport/one_sided.h"
#include "transport/transport.h"

namespace linkgauge {

// How a mechanism's copies come about.
struct OneSidedMeans {
  bool sender_starts = true;
  bool needs_peer_access = false;  // where the devices refuse it: the case is skipped, or the runtime stages by itself
  bool tries_out = false;          // make_leg measures on the links
  MakeLeg make_leg;
};

// Why the one-sided transports cannot be between the case's nodes, or "".
std::string why_not_across(const RankContext& context, const CaseSpec& spec);

// Transport::connect of the one-sided transports: peer access, the peers' buffers, the flags, and a channel for each
// flow that this rank is an end of, direct or through the device that the case names (transport/memory/routed.h).
std::vector<std::unique_ptr<Channel>> connect_one_sided(const RankContext& context, const CaseSpec& spec,
                                                        const Flows& flows, const OneSidedMeans& means);

}  // namespace linkgauge
