// Which devices SYCL shows, and what it tells of them.
#pragma once

#include <string>
#include <vector>

#include "device/device_runtime.h"
#include "device/sycl_api.h"

namespace linkgauge::sycl {

// A text of the library as a string; gives the text back.
std::string told(const Api& api, Text text);

// The GPUs of every backend, else the CPUs; each once: of backends that show a device of one name, the vendor's own is
// the most direct and the only one taken. `ordinals` count these; empty: all. The caller deletes them. Throws
// Unsupported where there is none, or none of such an ordinal.
std::vector<Device> find_devices(const Api& api, const std::vector<int>& ordinals);

bool is_gpu(const Api& api, Device device);
// All but the ordinal. SYCL's C API tells no PCI address, UUID or NUMA node.
DeviceInfo describe(const Api& api, Device device);

}  // namespace linkgauge::sycl
