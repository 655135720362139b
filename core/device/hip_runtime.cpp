#include <memory>
#include <utility>

#include "device/gpu_runtime.h"
#include "device/hip_driver.h"
#include "device/hiprtc_compiler.h"
#include "device/runtimes.h"

namespace linkgauge {

std::shared_ptr<DeviceRuntime> open_hip_runtime(const RuntimeRequest& request) {
  auto driver = std::make_unique<HipDriver>();
  auto open_compiler = [library = driver->library_path()] { return open_hiprtc(library); };
  return std::make_shared<GpuRuntime>(std::move(driver), std::move(open_compiler), request, "HIP_VISIBLE_DEVICES");
}

}  // namespace linkgauge
