// The kernels of host devices: plain functions by the names of kernels/kernels.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "device/device_runtime.h"

namespace linkgauge {

// A kernel runs on its stream's thread, as one thread for the whole launch: a host device is one core. `arguments`
// points to each parameter, as for cuLaunchKernel.
struct HostKernel {
  void (*run)(void** arguments, const LaunchShape& shape) = nullptr;
  // Size of each parameter: a launch is queued, so its parameters are copied when it is made. At most 12 parameters and
  // 32 words of 8 bytes in all, each parameter beginning a word.
  std::span<const std::uint8_t> argument_bytes;
};

// The kernel of that name; throws CallerError naming the name and those there are.
HostKernel host_kernel(std::string_view name);

}  // namespace linkgauge
