// The CUDA driver API under the names that GpuCalls uses.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "device/cuda_api.h"
#include "device/gpu_calls.h"

namespace linkgauge {

struct CudaVendor {
  using Api = cuda::Api;
  using Result = cuda::Result;
  using Address = cuda::DevicePointer;
  using IpcHandle = cuda::IpcHandle;
  using State = cuda::Context;  // retained on first use: a context costs memory on its device

  static constexpr RuntimeKind kKind = RuntimeKind::kCuda;
  static constexpr Result kSuccess = cuda::kSuccess;
  static constexpr Result kNotReady = cuda::kNotReady;
  static constexpr Result kOutOfMemory = cuda::kOutOfMemory;
  static constexpr unsigned kPinnedFlags = cuda::kHostAllocPortable | cuda::kHostAllocDeviceMap;
  static constexpr unsigned kWriteCombinedFlag = cuda::kHostAllocWriteCombined;
  static constexpr unsigned kManagedFlags = cuda::kMemAttachGlobal;
  static constexpr unsigned kRegisterFlags = cuda::kHostRegisterPortable | cuda::kHostRegisterDeviceMap;
  static constexpr unsigned kStreamFlags = cuda::kStreamNonBlocking;
  static constexpr unsigned kEventFlags = cuda::kEventDefault;
  static constexpr int kCaptureMode = cuda::kCaptureThreadLocal;
  static constexpr int kReadMostly = cuda::kAdviseReadMostly;
  static constexpr int kPreferredLocation = cuda::kAdvisePreferredLocation;
  static constexpr int kAccessedBy = cuda::kAdviseAccessedBy;
  static constexpr cuda::Attribute kMultiprocessorCount = cuda::kMultiprocessorCount;
  static constexpr cuda::Attribute kPageableMemoryAccess = cuda::kPageableMemoryAccess;
  static constexpr char kPageableMemoryAccessName[] = "CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS";
  static constexpr cuda::Attribute kPageableUsesHostPageTables = cuda::kPageableUsesHostPageTables;
  static constexpr cuda::Attribute kL2CacheBytes = cuda::kL2CacheBytes;
  static constexpr std::array<std::pair<const char*, cuda::Attribute>, 11> kTold{{
      {"clock_khz", cuda::kClockRateKhz},
      {"memory_clock_khz", cuda::kMemoryClockRateKhz},
      {"memory_bus_bits", cuda::kGlobalMemoryBusWidthBits},
      {"copy_engines", cuda::kAsyncEngineCount},
      {"ecc", cuda::kEccEnabled},
      {"compute_mode", cuda::kComputeMode},
      {"managed_memory_concurrent", cuda::kConcurrentManagedAccess},
      {"pageable_memory_access", cuda::kPageableMemoryAccess},
      {"host_native_atomics", cuda::kHostNativeAtomics},
      {"shared_bytes_a_block", cuda::kMaxSharedMemoryOptinBytes},
      {"multicast", cuda::kMulticast},
  }};

  static Address address(const void* memory) { return reinterpret_cast<Address>(memory); }
  static void* pointer(Address memory) { return reinterpret_cast<void*>(memory); }
  static std::string error_name(const Api& api, Result result) {
    const char* text = nullptr;
    return api.cuGetErrorName(result, &text) == kSuccess && text != nullptr ? text : "unknown error";
  }
  static std::string error_text(const Api& api, Result result) {
    const char* text = nullptr;
    return api.cuGetErrorString(result, &text) == kSuccess && text != nullptr ? text : "";
  }

#define LINKGAUGE_CUDA_CALL(role, cuda_name, hip_name) static constexpr auto role = &Api::cuda_name;
  LINKGAUGE_GPU_CALLS(LINKGAUGE_CUDA_CALL)
#undef LINKGAUGE_CUDA_CALL
};

}  // namespace linkgauge
