// The options of transport nvshmem: who moves the bytes, and by which calls.
#pragma once

#include <cstdint>

#include "transport/options.h"

namespace linkgauge::nvshmem {

// Who puts a message, or a part of one: a block's threads together, a warp's, or one thread. Numbers are the kernels'.
enum class Scope : std::int32_t { kBlock, kWarp, kThread };
// kCollective and kDeviceCollective: the library's own, called by the host or by a kernel of ours. kDevice: puts by
// kernels of ours.
enum class Way : std::uint8_t { kPut, kGet, kSignal, kCollective, kDevice, kDeviceCollective };

struct Options {
  Way way = Way::kPut;
  Scope scope = Scope::kBlock;
  bool plain = false;  // a word alone, without a signal: of flag_pingpong

  bool device() const { return way == Way::kDevice; }
  bool signals() const { return way == Way::kSignal || device(); }
  bool collective() const { return way == Way::kCollective || way == Way::kDeviceCollective; }
  bool by_kernels() const { return device() || way == Way::kDeviceCollective; }
  bool waits_on_streams() const { return signals() || collective(); }
};

inline constexpr VariantWord<Options> kWords[] = {
    {"put", {Way::kPut}},
    {"get", {Way::kGet}},
    {"signal", {Way::kSignal}},
    {"collective", {Way::kCollective}},
    {"device", {Way::kDevice}},
    {"device+warp", {Way::kDevice, Scope::kWarp}},
    {"device+thread", {Way::kDevice, Scope::kThread}},
    {"device+p", {Way::kDevice, Scope::kThread, true}},
    {"device+collective", {Way::kDeviceCollective}},
};
inline constexpr Variants<Options> kVariants{"nvshmem", kWords, "; those of device are by kernels"};

}  // namespace linkgauge::nvshmem
