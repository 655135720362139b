// The directed flows of a case that are timed by themselves.
#pragma once

#include <string>
#include <vector>

#include "base/case_spec.h"

namespace linkgauge {

// Names of lanes, index = lane: {"0->1"}, {"0->1", "1->0"}, {"all"}. Ranks of the case.
std::vector<std::string> lanes_of(const CaseSpec& spec);

// Why samples cannot say which lane of so large a case they are of, or "": a stored lane has 16 bits.
std::string why_not_told_apart(const CaseSpec& spec);

}  // namespace linkgauge
