// NVSHMEM's own collectives over a team of PEs: queued on a stream by the host, or called by a kernel of ours.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "transport/nvshmem/pe.h"
#include "transport/operation.h"

namespace linkgauge::nvshmem {

// Why NVSHMEM has none for the case, or "".
std::string why_not_collective(const CaseSpec& spec, const Options& options, const Library& library);
// What a rank lends, for Pe::meet.
std::vector<std::size_t> collective_sizes(const CaseSpec& spec, int ranks, int rank);
std::unique_ptr<Operation> make_collective(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                           const Options& options, std::shared_ptr<Pe> pe);

}  // namespace linkgauge::nvshmem
