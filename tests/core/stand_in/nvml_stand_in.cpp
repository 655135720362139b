// A stand-in for libnvidia-ml.so.1: identity facts by PCI address. It lists as many GPUs as LINKGAUGE_STAND_IN_NVML
// says, none without it, each with the process LINKGAUGE_STAND_IN_NVML_PID.
#ifdef LINKGAUGE_VENDOR_HEADERS
#include <nvml.h>
#else
#define DECLDIR
using nvmlReturn_t = int;
using nvmlDevice_t = struct nvmlDevice_st*;
struct nvmlProcessInfo_t {  // NOLINT
  unsigned pid;
  unsigned long long usedGpuMemory;           // NOLINT
  unsigned gpuInstanceId, computeInstanceId;  // NOLINT
};
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define STAND_IN(name) extern "C" __attribute__((visibility("default"))) nvmlReturn_t DECLDIR name

namespace {

constexpr int kInvalidArgument = 2, kInsufficientSize = 7, kFunctionNotFound = 13;

nvmlReturn_t code(int value) { return static_cast<nvmlReturn_t>(value); }
unsigned number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

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
STAND_IN(nvmlInitWithFlags)(unsigned) { return code(number_in("LINKGAUGE_STAND_IN_NVML") > 0 ? 0 : kFunctionNotFound); }
STAND_IN(nvmlDeviceGetCount_v2)(unsigned* count) {
  *count = number_in("LINKGAUGE_STAND_IN_NVML");
  return code(*count > 0 ? 0 : kFunctionNotFound);
}
STAND_IN(nvmlDeviceGetHandleByIndex_v2)(unsigned index, nvmlDevice_t* device) {
  if (index >= number_in("LINKGAUGE_STAND_IN_NVML")) return code(kInvalidArgument);
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<unsigned long>(0x1b + index));
  return code(0);
}
STAND_IN(nvmlDeviceGetUUID)(nvmlDevice_t device, char* text, unsigned length) {
  std::snprintf(text, length, "GPU-%08lx-0000-0000-0000-000000000000", reinterpret_cast<unsigned long>(device));
  return code(0);
}
STAND_IN(nvmlDeviceGetComputeRunningProcesses_v3)(nvmlDevice_t, unsigned* count, nvmlProcessInfo_t* processes) {
  const unsigned pid = number_in("LINKGAUGE_STAND_IN_NVML_PID");
  const unsigned room = *count;
  *count = pid == 0 ? 0 : 1;
  if (*count > room) return code(kInsufficientSize);
  if (pid != 0) processes[0] = {pid, 0, 0, 0};
  return code(0);
}
