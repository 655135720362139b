// The run-time compilers' functions as one table: NVRTC and hipRTC have the same ones under their own names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/symbols.h"

namespace linkgauge::rtc {

using Result = int;     // nvrtcResult, hiprtcResult
using Program = void*;  // nvrtcProgram, hiprtcProgram

// FUNCTION(member, NVRTC's name, hipRTC's name, type)
#define LINKGAUGE_RTC_API(FUNCTION)                                                                        \
  FUNCTION(version, nvrtcVersion, hiprtcVersion, Result(int*, int*))                                       \
  FUNCTION(error_text, nvrtcGetErrorString, hiprtcGetErrorString, const char*(Result))                     \
  FUNCTION(create_program, nvrtcCreateProgram, hiprtcCreateProgram,                                        \
           Result(Program*, const char*, const char*, int, const char**, const char**))                    \
  FUNCTION(compile_program, nvrtcCompileProgram, hiprtcCompileProgram, Result(Program, int, const char**)) \
  FUNCTION(code_size, nvrtcGetCUBINSize, hiprtcGetCodeSize, Result(Program, std::size_t*))                 \
  FUNCTION(code, nvrtcGetCUBIN, hiprtcGetCode, Result(Program, char*))                                     \
  FUNCTION(log_size, nvrtcGetProgramLogSize, hiprtcGetProgramLogSize, Result(Program, std::size_t*))       \
  FUNCTION(log, nvrtcGetProgramLog, hiprtcGetProgramLog, Result(Program, char*))                           \
  FUNCTION(destroy_program, nvrtcDestroyProgram, hiprtcDestroyProgram, Result(Program*))

struct Api {
#define LINKGAUGE_MEMBER(member, nvrtc_name, hiprtc_name, type) std::add_pointer_t<type> member = nullptr;
  LINKGAUGE_RTC_API(LINKGAUGE_MEMBER)
#undef LINKGAUGE_MEMBER
  // NVRTC's alone; those of architectures since CUDA 11.2.
  Result (*ptx_size)(Program, std::size_t*) = nullptr;
  Result (*ptx)(Program, char*) = nullptr;
  Result (*architecture_count)(int*) = nullptr;
  Result (*architectures)(int*) = nullptr;

  std::vector<SymbolEntry> nvrtc_entries();
  std::vector<SymbolEntry> hiprtc_entries();
};

enum class Kind : std::uint8_t { kCode, kPtx };

// What `source` may include beside files, by name.
struct Header {
  const char* name;
  const char* text;
};

// Compiles `source`. `call` names the compiler's function in errors; throws RuntimeCallError with the log.
std::string compile(const Api& api, const char* call, const std::string& source,
                    const std::vector<std::string>& options, Kind kind = Kind::kCode,
                    std::span<const Header> headers = {});

}  // namespace linkgauge::rtc
