// The host devices' kernel lg_allreduce: one thread plays all blocks of the grid, one after the other.
#pragma once

#include <cstdint>
#include <span>

#include "device/device_runtime.h"

namespace linkgauge {

void run_allreduce(void** arguments, const LaunchShape& shape);
std::span<const std::uint8_t> allreduce_argument_bytes();

}  // namespace linkgauge
