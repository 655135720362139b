// A stand-in for libnvrtc.so: takes any source, gives an image that only the stand-in driver loads.
#ifdef LINKGAUGE_VENDOR_HEADERS
#include <nvrtc.h>
#else
using nvrtcResult = int;
using nvrtcProgram = struct _nvrtcProgram*;
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#define STAND_IN(name) extern "C" __attribute__((visibility("default"))) nvrtcResult name

namespace {

struct Program {
  std::string source;
  std::string image;
};
Program* program_of(nvrtcProgram program) { return reinterpret_cast<Program*>(program); }
nvrtcResult code(int value) { return static_cast<nvrtcResult>(value); }
constexpr int kArchitectures[] = {75, 80, 90, 100};
constexpr char kLog[] = "stand_in.cu(7): error: asked to fail";

}  // namespace

STAND_IN(nvrtcVersion)(int* major, int* minor) {
  *major = LINKGAUGE_STAND_IN_NVRTC_MAJOR;
  *minor = 9;
  return code(0);
}
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(nvrtcResult result) {
  return static_cast<int>(result) == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS";
}
STAND_IN(nvrtcCreateProgram)
(nvrtcProgram* program, const char* source, const char*, int, const char* const*, const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(new Program{source, {}});
  return code(0);
}
STAND_IN(nvrtcCompileProgram)(nvrtcProgram program, int count, const char* const* options) {
  constexpr char kOption[] = "--gpu-architecture=";
  if (std::getenv("LINKGAUGE_STAND_IN_NVRTC_FAILS") != nullptr) return code(6);
  for (int i = 0; i < count; ++i) {
    if (std::strncmp(options[i], kOption, sizeof(kOption) - 1) == 0)
      program_of(program)->image = std::string("stand-in image for ") + (options[i] + sizeof(kOption) - 1) + "\n";
  }
  // A library's device code that is all in headers is compiled in, not linked afterwards.
  if (program_of(program)->source.find("#include <nccl_device/") != std::string::npos)
    program_of(program)->image += "linked with NCCL's headers\n";
  if (const char* trace = std::getenv("LINKGAUGE_STAND_IN_NVRTC_TRACE"); trace != nullptr) {
    if (FILE* file = std::fopen(trace, "a"); file != nullptr) {
      std::fputs("compiled\n", file);
      std::fclose(file);
    }
  }
  return code(program_of(program)->image.empty() ? 5 : 0);
}
STAND_IN(nvrtcGetCUBINSize)(nvrtcProgram program, size_t* size) {
  *size = program_of(program)->image.size();
  return code(0);
}
STAND_IN(nvrtcGetCUBIN)(nvrtcProgram program, char* image) {
  std::memcpy(image, program_of(program)->image.data(), program_of(program)->image.size());
  return code(0);
}
STAND_IN(nvrtcGetPTXSize)(nvrtcProgram program, size_t* size) { return nvrtcGetCUBINSize(program, size); }
STAND_IN(nvrtcGetPTX)(nvrtcProgram program, char* image) { return nvrtcGetCUBIN(program, image); }
STAND_IN(nvrtcGetNumSupportedArchs)(int* count) {
  *count = static_cast<int>(std::size(kArchitectures));
  return code(0);
}
STAND_IN(nvrtcGetSupportedArchs)(int* architectures) {
  std::copy(std::begin(kArchitectures), std::end(kArchitectures), architectures);
  return code(0);
}
STAND_IN(nvrtcGetProgramLogSize)(nvrtcProgram, size_t* size) {
  *size = sizeof(kLog);
  return code(0);
}
STAND_IN(nvrtcGetProgramLog)(nvrtcProgram, char* log) {
  std::memcpy(log, kLog, sizeof(kLog));
  return code(0);
}
STAND_IN(nvrtcDestroyProgram)(nvrtcProgram* program) {
  delete program_of(*program);
  *program = nullptr;
  return code(0);
}
