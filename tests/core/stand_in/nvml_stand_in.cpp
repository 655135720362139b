// A stand-in for libnvidia-ml.so.1: identity facts by PCI address, and with LINKGAUGE_STAND_IN_NVML_OTHERS, a number of
// bytes a second, counters that another user moves all the time; with 0 they stand still, and without it there are
// none.
#ifdef LINKGAUGE_VENDOR_HEADERS
#include <nvml.h>
#else
#define DECLDIR
using nvmlReturn_t = int;
using nvmlDevice_t = struct nvmlDevice_st*;
union nvmlValue_t {
  unsigned long long ullVal;
};
struct nvmlFieldValue_t {
  unsigned fieldId;
  unsigned scopeId;
  long long timestamp;
  long long latencyUsec;
  unsigned valueType;
  nvmlReturn_t nvmlReturn;
  nvmlValue_t value;
};
using nvmlProcessInfo_t = struct nvmlProcessInfo_st;
struct nvmlUtilization_t {
  unsigned gpu;
  unsigned memory;
};
#endif

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define STAND_IN(name) extern "C" __attribute__((visibility("default"))) nvmlReturn_t DECLDIR name

namespace {

nvmlReturn_t code(int value) { return static_cast<nvmlReturn_t>(value); }

constexpr int kNotSupported = 3;
constexpr int kFunctionNotFound = 13;
constexpr int kUnsignedLongLong = 3;
// NVML_FI_DEV_*: NVLink's data in KiB, PCIe's bytes in 32 bits, power in mW.
constexpr unsigned kNvlinkSent = 138, kNvlinkReceived = 139, kPcieSent = 197, kPcieReceived = 198, kPower = 186;

double others_rate() {
  const char* rate = std::getenv("LINKGAUGE_STAND_IN_NVML_OTHERS");
  return rate == nullptr ? -1.0 : std::atof(rate);
}

std::uint64_t counted_bytes() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration<double>(now).count() * others_rate());
}

}  // namespace

STAND_IN(nvmlInit_v2)() { return code(std::getenv("LINKGAUGE_STAND_IN_NVML_DENIED") != nullptr ? 4 : 0); }
// What nvidia-ml-py calls in place of nvmlInit.
STAND_IN(nvmlInitWithFlags)(unsigned) { return code(others_rate() < 0 ? kFunctionNotFound : 0); }
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
STAND_IN(nvmlDeviceGetFieldValues)(nvmlDevice_t, int count, nvmlFieldValue_t* values) {
  for (int i = 0; i < count; ++i) {
    nvmlFieldValue_t& one = values[i];
    one.nvmlReturn = code(others_rate() < 0 ? kNotSupported : 0);
    std::memset(&one.valueType, 0, sizeof one.valueType);
    const int kind = kUnsignedLongLong;
    std::memcpy(&one.valueType, &kind, sizeof kind);
    switch (one.fieldId) {
      case kNvlinkSent:
      case kNvlinkReceived:
        one.value.ullVal = counted_bytes() >> 10;
        break;
      case kPcieSent:
      case kPcieReceived:
        one.value.ullVal = 0;
        break;
      case kPower:
        one.value.ullVal = 120000;
        break;
      default:
        one.nvmlReturn = code(kNotSupported);
    }
  }
  return code(0);
}
// As a driver lists those of another PID namespace: none.
STAND_IN(nvmlDeviceGetComputeRunningProcesses_v3)(nvmlDevice_t, unsigned* count, nvmlProcessInfo_t*) {
  *count = 0;
  return code(0);
}
STAND_IN(nvmlDeviceGetUtilizationRates)(nvmlDevice_t, nvmlUtilization_t* rates) {
  if (others_rate() < 0) return code(kNotSupported);
  rates->gpu = others_rate() > 0 ? 97 : 0;
  rates->memory = 0;
  return code(0);
}
