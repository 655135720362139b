// The factories behind open_runtime, one a kind of device.
#pragma once

#include <memory>

#include "device/device_runtime.h"

namespace linkgauge {

std::shared_ptr<DeviceRuntime> open_host_runtime(const RuntimeRequest& request);  // device/host_runtime.cpp
std::shared_ptr<DeviceRuntime> open_cuda_runtime(const RuntimeRequest& request);  // device/cuda_driver.cpp
std::shared_ptr<DeviceRuntime> open_hip_runtime(const RuntimeRequest& request);   // device/hip_driver.cpp
std::shared_ptr<DeviceRuntime> open_sycl_runtime(const RuntimeRequest& request);  // device/sycl_runtime.cpp

}  // namespace linkgauge
