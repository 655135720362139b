// A stand-in for libnvJitLink.so: gives what it is given, and says with what it was linked.
#ifdef LINKGAUGE_VENDOR_HEADERS
#include <nvJitLink.h>
#else
#include <cstddef>
#include <cstdint>
using nvJitLinkResult = int;
using nvJitLinkHandle = struct nvJitLink*;
using nvJitLinkInputType = int;
#endif

#include <cstdlib>
#include <cstring>
#include <string>

#include "machine.h"

namespace {

struct Link {
  std::string image;
};
Link* link_of(nvJitLinkHandle handle) { return reinterpret_cast<Link*>(handle); }
nvJitLinkResult code(int value) { return static_cast<nvJitLinkResult>(value); }
constexpr char kLog[] = "error: Undefined reference to 'nvshmem_quiet'";
constexpr int kCubin = 1;
constexpr int kLibrary = 6;
constexpr int kInternal = 6;  // NVJITLINK_ERROR_INTERNAL
constexpr int kInvalid = 3;   // NVJITLINK_ERROR_INVALID_INPUT

}  // namespace

// The header's own names are inline, and call those with the version.
#ifdef LINKGAUGE_VENDOR_HEADERS
#define STAND_IN(name) LINKGAUGE_STAND_IN_EXPORT nvJitLinkResult __##name##_13_0
#else
#define STAND_IN(name) LINKGAUGE_STAND_IN_EXPORT nvJitLinkResult name
#endif

STAND_IN(nvJitLinkCreate)(nvJitLinkHandle* handle, std::uint32_t count, const char* const* options) {
  if (count != 1 || std::strncmp(options[0], "-arch=sm_", 9) != 0) return code(2);
  *handle = reinterpret_cast<nvJitLinkHandle>(new Link);
  return code(0);
}
STAND_IN(nvJitLinkDestroy)(nvJitLinkHandle* handle) {
  delete link_of(*handle);
  *handle = nullptr;
  return code(0);
}
STAND_IN(nvJitLinkAddData)
(nvJitLinkHandle handle, nvJitLinkInputType type, const void* data, std::size_t size, const char*) {
  if (static_cast<int>(type) != kCubin) return code(kInvalid);
  link_of(handle)->image.assign(static_cast<const char*>(data), size);
  return code(0);
}
STAND_IN(nvJitLinkAddFile)(nvJitLinkHandle handle, nvJitLinkInputType type, const char* file) {
  if (static_cast<int>(type) != kLibrary) return code(kInvalid);
  link_of(handle)->image += std::string(stand_in::kLinkedMark) + file + "\n";
  return code(0);
}
STAND_IN(nvJitLinkComplete)(nvJitLinkHandle) {
  return code(std::getenv("LINKGAUGE_STAND_IN_NVJITLINK_FAILS") != nullptr ? kInternal : 0);
}
STAND_IN(nvJitLinkGetLinkedCubinSize)(nvJitLinkHandle handle, std::size_t* size) {
  *size = link_of(handle)->image.size();
  return code(0);
}
STAND_IN(nvJitLinkGetLinkedCubin)(nvJitLinkHandle handle, void* image) {
  std::memcpy(image, link_of(handle)->image.data(), link_of(handle)->image.size());
  return code(0);
}
STAND_IN(nvJitLinkGetErrorLogSize)(nvJitLinkHandle, std::size_t* size) {
  *size = sizeof kLog;
  return code(0);
}
STAND_IN(nvJitLinkGetErrorLog)(nvJitLinkHandle, char* log) {
  std::memcpy(log, kLog, sizeof kLog);
  return code(0);
}
