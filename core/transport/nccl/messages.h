// An application's messages by NCCL's sends and receives.
#pragma once

#include <memory>
#include <vector>

#include "transport/nccl/api.h"
#include "transport/transport.h"

namespace linkgauge {

// Collective. All that a rank sends and receives goes by one communicator, of messages alone, and one stream. What is
// put and got up to a start() or complete() is one group, and so one kernel, as a program's batch is. A group waits for
// the one before it: matching.py refuses programs whose ranks would then wait for each other for ever.
std::vector<std::unique_ptr<Channel>> connect_ccl(const RankContext& context, const ccl::Library& library,
                                                  const Flows& flows);

}  // namespace linkgauge
