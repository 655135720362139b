// The counters of one-sided flows between nodes of one NVLink domain: words in device memory with fabric handles, since
// such nodes share no other memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace linkgauge {

// One end's counters of a flow: how it tells the other end, and waits for what that tells.
class Counters {
 public:
  virtual ~Counters() = default;
  virtual void tell(std::uint64_t messages) = 0;
  virtual void await(std::uint64_t messages) = 0;
};

// Whether ranks share a node's memory. Not collective.
bool on_one_node(const RankContext& context, int one, int other);

// Collective. Element i: of flows[i], where its two ranks are on two nodes and this rank is one of them; else nullptr.
// A word is written by a copy of 8 bytes that is queued and not waited for, and looked at by others that are. Throws
// Unsupported on every rank where a handle cannot be made or opened.
std::vector<std::unique_ptr<Counters>> connect_far_counters(const RankContext& context, const std::vector<Flow>& flows);

}  // namespace linkgauge
