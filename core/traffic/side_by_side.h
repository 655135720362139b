// Several equal groups of a case's ranks that do the same at the same time, none knowing of the others: what each does
// is a case of its own, with operation, communicator and check. Samples are taken together, each group a lane or more.
#pragma once

#include <string>

#include "base/case_spec.h"

namespace linkgauge {

// Into how many groups the case's ranks fall: the dimension `groups`; or for pairs side by side over ccl, whose
// operations take all ranks of a communicator, one for each pair. Other transports have patterns of pairs of their own.
int groups_of(const CaseSpec& spec);

// What the ranks of group `number` do: the case on those ranks alone.
CaseSpec part_of(const CaseSpec& spec, int number);

// Empty: the ranks fall into such groups. Otherwise why not.
std::string why_not_grouped(const CaseSpec& spec);

}  // namespace linkgauge
