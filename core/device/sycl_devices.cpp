#include "device/sycl_devices.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/errors.h"

namespace linkgauge::sycl {
namespace {

// In which order their devices are taken.
struct Backend {
  int value;
  const char* name;
};
constexpr std::array<Backend, 4> kBackends{
    {{kCuda, "cuda"}, {kHip, "hip"}, {kLevelZero, "level_zero"}, {kOpenCl, "opencl"}}};

void let_go(const Api& api, const std::vector<Device>& devices) {
  for (const Device device : devices) {
    if (device != nullptr) api.DPCTLDevice_Delete(device);
  }
}

std::vector<Device> of_type(const Api& api, int type) {
  std::vector<Device> found;
  std::vector<std::string> names;  // of devices that backends before this one have shown
  for (const Backend& backend : kBackends) {
    const DeviceVector seen = api.DPCTLDeviceMgr_GetDevices(backend.value | type);
    if (seen == nullptr) continue;
    std::vector<std::string> own;  // two alike of one backend are two
    for (std::size_t i = 0; i < api.DPCTLDeviceVector_Size(seen); ++i) {
      const Device device = api.DPCTLDeviceVector_GetAt(seen, i);
      if (device == nullptr) continue;
      own.push_back(told(api, api.DPCTLDevice_GetName(device)));
      if (std::find(names.begin(), names.end(), own.back()) == names.end()) {
        found.push_back(device);
      } else {
        api.DPCTLDevice_Delete(device);
      }
    }
    names.insert(names.end(), own.begin(), own.end());
    api.DPCTLDeviceVector_Delete(seen);
  }
  return found;
}

}  // namespace

std::string told(const Api& api, Text text) {
  if (text == nullptr) return {};
  std::string result = text;
  api.DPCTLCString_Delete(text);
  return result;
}

std::vector<Device> find_devices(const Api& api, const std::vector<int>& ordinals) {
  std::vector<Device> found = of_type(api, kGpu);
  if (found.empty()) found = of_type(api, kCpu);
  if (found.empty()) {
    throw Unsupported(
        "SYCL shows no GPU and no CPU: none of its backends (cuda, hip, level_zero, opencl) found a driver; for this "
        "CPU: pip install intel-opencl-rt");
  }
  if (ordinals.empty()) return found;
  std::vector<Device> chosen;
  for (const int ordinal : ordinals) {
    const bool there = ordinal >= 0 && ordinal < static_cast<int>(found.size());
    if (there) chosen.push_back(std::exchange(found[static_cast<std::size_t>(ordinal)], nullptr));
    if (there && chosen.back() != nullptr) continue;
    let_go(api, found);
    let_go(api, chosen);
    throw Unsupported("device sycl:" + std::to_string(ordinal) +
                      (there ? " is named twice"
                             : " does not exist: there are " + std::to_string(found.size()) + ", numbered from 0"));
  }
  let_go(api, found);
  return chosen;
}

bool is_gpu(const Api& api, Device device) { return api.DPCTLDevice_HasAspect(device, kAspectGpu); }

DeviceInfo describe(const Api& api, Device device) {
  DeviceInfo info;
  info.kind = RuntimeKind::kSycl;
  info.name = told(api, api.DPCTLDevice_GetName(device));
  info.multiprocessors = static_cast<int>(api.DPCTLDevice_GetMaxComputeUnits(device));
  info.memory_bytes = api.DPCTLDevice_GetGlobalMemSize(device);
  info.last_level_cache_bytes = api.DPCTLDevice_GetGlobalMemCacheSize(device);
  const auto backend = std::find_if(kBackends.begin(), kBackends.end(), [&](const Backend& one) {
    return one.value == api.DPCTLDevice_GetBackend(device);
  });
  // As ONEAPI_DEVICE_SELECTOR names it.
  info.architecture =
      std::string(backend == kBackends.end() ? "unknown" : backend->name) + (is_gpu(api, device) ? ":gpu" : ":cpu");
  info.attributes["vendor"] = told(api, api.DPCTLDevice_GetVendor(device));
  info.attributes["driver_version"] = told(api, api.DPCTLDevice_GetDriverVersion(device));
  info.attributes["max_frequency_mhz"] = std::to_string(api.DPCTLDevice_GetMaxClockFrequency(device));
  info.attributes["max_allocation_bytes"] = std::to_string(api.DPCTLDevice_GetMaxMemAllocSize(device));
  info.attributes["profiling_resolution_ns"] = std::to_string(api.DPCTLDevice_GetProfilingTimerResolution(device));
  const Platform platform = api.DPCTLDevice_GetPlatform(device);
  info.attributes["platform"] = told(api, api.DPCTLPlatform_GetName(platform));
  info.attributes["platform_version"] = told(api, api.DPCTLPlatform_GetVersion(platform));
  api.DPCTLPlatform_Delete(platform);
  return info;
}

}  // namespace linkgauge::sycl
