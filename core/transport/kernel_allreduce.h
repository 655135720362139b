// Allreduce by kernels that read the peers' buffers directly: `one_shot`, where every rank reads all peers, and
// `two_shot`, a reduce-scatter by peer reads and then an allgather of the results, pulled or pushed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pattern/operation.h"

namespace linkgauge {

// "" or why the case's algorithm word does not fit it.
std::string why_not_kernel_allreduce(const CaseSpec& spec);
// `pushes`: two_shot's results are written into the peers' buffers, not read from them.
std::unique_ptr<Operation> make_kernel_allreduce(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                                 bool pushes);

// Grid of lg_copy for `bytes`; `blocks` 0 leaves their number to this function.
LaunchShape kernel_copy_shape(unsigned multiprocessors, unsigned blocks, std::uint64_t bytes);

}  // namespace linkgauge
