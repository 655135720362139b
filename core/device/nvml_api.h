// What only NVML knows of an NVIDIA GPU: serial number and VBIOS. NVML is part of the driver, but a container may lack
// it; then these stay empty.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "base/symbols.h"

namespace linkgauge::nvml {

using Result = int;    // nvmlReturn_t
using Device = void*;  // nvmlDevice_t

#define LINKGAUGE_NVML_API(REQUIRED, OPTIONAL)                             \
  REQUIRED(nvmlInit_v2, Result())                                          \
  REQUIRED(nvmlDeviceGetHandleByPciBusId_v2, Result(const char*, Device*)) \
  REQUIRED(nvmlDeviceGetSerial, Result(Device, char*, unsigned))           \
  REQUIRED(nvmlDeviceGetVbiosVersion, Result(Device, char*, unsigned))     \
  REQUIRED(nvmlSystemGetDriverVersion, Result(char*, unsigned))

struct Api {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_NVML_API)
};

struct Facts {
  std::string serial;
  std::string vbios;
};

// NVML of this machine, opened once; nothing throws, and what it does not tell is empty.
class Library {
 public:
  Library();
  Facts facts(const std::string& pci_address) const;
  std::string driver_version() const;  // "580.159.04"

 private:
  Api api_;
  bool ready_ = false;
};

}  // namespace linkgauge::nvml
