// The host devices' kernels lg_allreduce and lg_allreduce_push_*: one thread plays all blocks of the grid, one after
// the other.
#pragma once

#include <cstdint>
#include <span>

#include "device/device_runtime.h"

namespace linkgauge {

void run_allreduce(void** arguments, const LaunchShape& shape);
std::span<const std::uint8_t> allreduce_argument_bytes();

// By Datatype's numbers, as kKernelsAllreducePush.
using HostLaunch = void (*)(void** arguments, const LaunchShape& shape);
HostLaunch run_allreduce_push(std::uint32_t datatype);
std::span<const std::uint8_t> allreduce_push_argument_bytes();

}  // namespace linkgauge
