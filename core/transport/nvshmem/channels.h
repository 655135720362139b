// Messages of NVSHMEM's between PEs: started by the host on a stream, or by kernels of ours that put by themselves.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/nvshmem/pe.h"
#include "transport/transport.h"

namespace linkgauge::nvshmem {

// What channels with signals need besides for the words that tell of messages, for all flows of a rank: 16 bytes each.
inline constexpr std::size_t kSignalBytes = std::size_t{64} << 10;

// Collective over the case's ranks.
std::vector<std::unique_ptr<Channel>> stream_channels(const RankContext& context, const CaseSpec& spec,
                                                      const Flows& flows, const std::shared_ptr<Pe>& pe);

}  // namespace linkgauge::nvshmem
