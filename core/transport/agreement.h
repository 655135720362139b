// What the ranks of a transport settle while they connect, and how they wait for each other afterwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "group/group.h"
#include "transport/transport.h"

namespace linkgauge {

// Of a device's stream. A poll costs about half a microsecond; an abort may wait a millisecond.
inline constexpr int kPollsPerAbortCheck = 1024;

// Collective: throws Unsupported on every rank when some rank has a reason ("" is none), naming the first such rank.
void agree_or_throw(Group& group, const std::string& reason, const Progress& progress = {});

// Collective: the first tag of MPI messages that an operation of these ranks may use, the next seven being its own as
// well. What an operation that failed has left under way is so never taken for the next one's.
int fresh_tags(const RankContext& context, const Progress& progress);

// Returns when *flag >= value. Throws PeerError when some rank has given up meanwhile.
void wait_for_flag(const std::atomic<std::uint64_t>& flag, std::uint64_t value, const Group& group,
                   const Progress& progress);

}  // namespace linkgauge
