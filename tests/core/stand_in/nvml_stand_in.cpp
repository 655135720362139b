// A stand-in for libnvidia-ml.so.1: identity facts by PCI address.
#ifdef LINKGAUGE_VENDOR_HEADERS
#include <nvml.h>
#else
#define DECLDIR
using nvmlReturn_t = int;
using nvmlDevice_t = struct nvmlDevice_st*;
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define STAND_IN(name) extern "C" __attribute__((visibility("default"))) nvmlReturn_t DECLDIR name

namespace {

nvmlReturn_t code(int value) { return static_cast<nvmlReturn_t>(value); }

}  // namespace

STAND_IN(nvmlInit_v2)() { return code(std::getenv("LINKGAUGE_STAND_IN_NVML_DENIED") != nullptr ? 4 : 0); }
STAND_IN(nvmlDeviceGetHandleByPciBusId_v2)(const char* address, nvmlDevice_t* device) {
  unsigned bus = 0;
  if (std::sscanf(address, "%*x:%x:", &bus) != 1) return code(2);
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<unsigned long>(bus));
  return code(0);
}
STAND_IN(nvmlDeviceGetSerial)(nvmlDevice_t device, char* text, unsigned length) {
  std::snprintf(text, length, "16500%lu", reinterpret_cast<unsigned long>(device));
  return code(0);
}
STAND_IN(nvmlDeviceGetVbiosVersion)(nvmlDevice_t, char* text, unsigned length) {
  std::snprintf(text, length, "96.00.A5.00.01");
  return code(0);
}
STAND_IN(nvmlSystemGetDriverVersion)(char* text, unsigned length) {
  std::snprintf(text, length, "580.00.00");
  return code(0);
}
