// What ranks settle together, and how they wait for each other's words.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "group/group.h"

namespace linkgauge {

// Collective: throws Unsupported on every rank when some rank has a reason ("" is none), naming the first such rank.
void agree_or_throw(Group& group, const std::string& reason, const Progress& progress = {});

// Returns when *flag >= value. Throws PeerError when some rank has given up meanwhile.
void wait_for_flag(const std::atomic<std::uint64_t>& flag, std::uint64_t value, const Group& group,
                   const Progress& progress);

}  // namespace linkgauge
