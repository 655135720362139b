// The kernels of host devices: plain functions by the names of kernels/kernels.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

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

// What a function of a launch's shape and a kernel's parameters is as a kernel.
template <auto kFunction>
struct KernelOf;
template <typename... Parameters, void (*kFunction)(const LaunchShape&, Parameters...)>
struct KernelOf<kFunction> {
  static constexpr std::array<std::uint8_t, sizeof...(Parameters)> kBytes{sizeof(Parameters)...};
  template <typename Parameter>
  static Parameter value_of(const void* argument) {
    Parameter value{};
    // A parameter may be a pointer, and then its own bytes are meant.
    std::memcpy(&value, argument, sizeof(Parameter));  // NOLINT(bugprone-sizeof-expression)
    return value;
  }
  template <std::size_t... kPlace>
  static void call([[maybe_unused]] void** arguments, const LaunchShape& shape, std::index_sequence<kPlace...>) {
    kFunction(shape, value_of<Parameters>(arguments[kPlace])...);
  }
  static void run(void** arguments, const LaunchShape& shape) {
    call(arguments, shape, std::index_sequence_for<Parameters...>{});
  }
};
template <auto kFunction>
constexpr HostKernel kernel_of() {
  return {KernelOf<kFunction>::run, KernelOf<kFunction>::kBytes};
}

// The kernel of that name; throws CallerError naming the name and those there are.
HostKernel host_kernel(std::string_view name);

}  // namespace linkgauge
