// The runtimes of devices, by number and by name.
#pragma once

#include <cstdint>

#include "base/words.h"

namespace linkgauge {

enum class RuntimeKind : std::uint8_t { kHost, kCuda, kHip, kSycl };
template <>
inline constexpr auto kNames<RuntimeKind> = names("runtime", "host", "cuda", "hip", "sycl");

}  // namespace linkgauge
