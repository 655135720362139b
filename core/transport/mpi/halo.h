// A halo exchange by MPI's derived datatypes: messages go straight from a field of cells, and into one.
#pragma once

#include <memory>
#include <string>

#include "transport/operation.h"

namespace linkgauge {

std::string why_no_halo_datatypes(const Traffic& traffic, int ranks);
std::unique_ptr<Operation> make_halo_datatypes(Transport& transport, const RankContext& context, const CaseSpec& spec);

}  // namespace linkgauge
