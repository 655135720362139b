// Latency from inside kernels: two kernels that put to each other by turns, each put with its signal.
#pragma once

#include <memory>

#include "transport/nvshmem/pe.h"
#include "transport/operation.h"

namespace linkgauge::nvshmem {

// What it lends, for Pe::meet.
std::vector<std::size_t> pingpong_sizes();
std::unique_ptr<Operation> make_pingpong(const RankContext& context, const CaseSpec& spec, const Options& options,
                                         std::shared_ptr<Pe> pe);

}  // namespace linkgauge::nvshmem
