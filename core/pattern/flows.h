// Which messages make a pattern: the flows that every transport's channels carry.
#pragma once

#include <cstddef>
#include <vector>

#include "case_spec.h"

namespace linkgauge {

struct PlannedFlow {
  int source = 0;
  int target = 0;
  std::size_t source_offset = 0;  // in the source's source buffer
  std::size_t target_offset = 0;  // in the target's target buffer
  std::size_t bytes = 0;
};

// All flows of one iteration, in the order in which ranks post them: rank i first to i + 1, then to i + 2, so that not
// all begin with the same target. Out of place a rank's own block is a flow to itself where the pattern's result has
// it (allgather, gather, scatter); alltoall leaves it out. Patterns that reduce are not made of flows alone.
std::vector<PlannedFlow> flows_of(const CaseSpec& spec, int ranks);

}  // namespace linkgauge
