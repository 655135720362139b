// The counters of one-sided flows between nodes of one NVLink domain: words in device memory with fabric handles, since
// such nodes share no other memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/one_sided.h"

namespace linkgauge {

// Collective. Element i: of flows[i], where its two ranks are on two nodes and this rank is one of them; else nullptr.
// A word is written by a copy of 8 bytes that is queued and not waited for, and looked at by others that are. Throws
// Unsupported on every rank where a handle cannot be made or opened.
std::vector<std::unique_ptr<Counters>> connect_far_counters(const RankContext& context, const Flows& flows);

}  // namespace linkgauge
