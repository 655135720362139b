// The host devices' kernels lg_allreduce and lg_allreduce_push_*: one thread plays all blocks of the grid, one after
// the other.
#pragma once

#include <cstdint>

#include "device/host_kernels.h"

namespace linkgauge {

HostKernel host_allreduce();
HostKernel host_allreduce_push(std::uint32_t datatype);  // by Datatype's numbers, as kKernelsAllreducePush

}  // namespace linkgauge
