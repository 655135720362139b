// nvJitLink, which links what NVRTC compiled with a library's device code, wherever this machine has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/symbols.h"

namespace linkgauge::nvjitlink {

using Result = int;    // nvJitLinkResult
using Handle = void*;  // nvJitLinkHandle

inline constexpr int kCubin = 1;  // nvJitLinkInputType
inline constexpr int kLibrary = 6;

// Restated without a header of CUDA's; tests/core/vendor_headers/ compiles it against nvJitLink.h.
#define LINKGAUGE_NVJITLINK_API(REQUIRED, OPTIONAL)                                      \
  REQUIRED(nvJitLinkCreate, Result(Handle*, std::uint32_t, const char**))                \
  REQUIRED(nvJitLinkDestroy, Result(Handle*))                                            \
  REQUIRED(nvJitLinkAddData, Result(Handle, int, const void*, std::size_t, const char*)) \
  REQUIRED(nvJitLinkAddFile, Result(Handle, int, const char*))                           \
  REQUIRED(nvJitLinkComplete, Result(Handle))                                            \
  REQUIRED(nvJitLinkGetLinkedCubinSize, Result(Handle, std::size_t*))                    \
  REQUIRED(nvJitLinkGetLinkedCubin, Result(Handle, void*))                               \
  REQUIRED(nvJitLinkGetErrorLogSize, Result(Handle, std::size_t*))                       \
  REQUIRED(nvJitLinkGetErrorLog, Result(Handle, char*))

struct Api {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_NVJITLINK_API)
};

// Links `cubin`, relocatable code for `architecture`, with `archive`. `major`: of the compiler that made it. Throws
// Unsupported where there is no nvJitLink of that version, naming the wheel, and RuntimeCallError with its log.
std::string link(const std::vector<std::string>& folders, int major, const std::string& cubin,
                 const std::string& architecture, const std::string& archive);

}  // namespace linkgauge::nvjitlink
