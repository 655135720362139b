#include <memory>
#include <utility>

#include "device/cuda_driver.h"
#include "device/gpu_runtime.h"
#include "device/nvrtc_compiler.h"
#include "device/runtimes.h"

namespace linkgauge {

std::shared_ptr<DeviceRuntime> open_cuda_runtime(const RuntimeRequest& request) {
  auto driver = std::make_unique<CudaDriver>();
  const int supported_version = driver->supported_version();
  auto open_compiler = [folders = request.library_folders, supported_version] {
    return open_nvrtc(folders, supported_version);
  };
  return std::make_shared<GpuRuntime>(std::move(driver), std::move(open_compiler), request, "CUDA_VISIBLE_DEVICES");
}

}  // namespace linkgauge
