// Runtimes that this build does not have.
#include "device/runtimes.h"
#include "errors.h"

namespace linkgauge {

std::shared_ptr<DeviceRuntime> open_hip_runtime(const RuntimeRequest& /*request*/) {
  throw Unsupported("this build has no HIP runtime; use host devices");
}

}  // namespace linkgauge
