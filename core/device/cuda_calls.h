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

  LINKGAUGE_CALL(device_count, cuDeviceGetCount);
  LINKGAUGE_CALL(pci_address, cuDeviceGetPCIBusId);
  LINKGAUGE_CALL(device_name, cuDeviceGetName);
  LINKGAUGE_CALL(total_memory, cuDeviceTotalMem_v2);
  LINKGAUGE_CALL(device_attribute, cuDeviceGetAttribute);
  LINKGAUGE_CALL(can_access_peer, cuDeviceCanAccessPeer);
  LINKGAUGE_CALL(memory_info, cuMemGetInfo_v2);
  LINKGAUGE_CALL(allocate, cuMemAlloc_v2);
  LINKGAUGE_CALL(free, cuMemFree_v2);
  LINKGAUGE_CALL(allocate_pinned, cuMemHostAlloc);
  LINKGAUGE_CALL(free_pinned, cuMemFreeHost);
  LINKGAUGE_CALL(allocate_managed, cuMemAllocManaged);
  LINKGAUGE_CALL(register_host, cuMemHostRegister_v2);
  LINKGAUGE_CALL(unregister_host, cuMemHostUnregister);
  LINKGAUGE_CALL(seen_from_device, cuMemHostGetDevicePointer_v2);
  LINKGAUGE_CALL(address_range, cuMemGetAddressRange_v2);
  LINKGAUGE_CALL(share, cuIpcGetMemHandle);
  LINKGAUGE_CALL(close_shared, cuIpcCloseMemHandle);
  LINKGAUGE_CALL(create_stream, cuStreamCreate);
  LINKGAUGE_CALL(stream_priorities, cuCtxGetStreamPriorityRange);
  LINKGAUGE_CALL(create_stream_of_priority, cuStreamCreateWithPriority);
  LINKGAUGE_CALL(destroy_stream, cuStreamDestroy_v2);
  LINKGAUGE_CALL(synchronize_stream, cuStreamSynchronize);
  LINKGAUGE_CALL(query_stream, cuStreamQuery);
  LINKGAUGE_CALL(begin_capture, cuStreamBeginCapture_v2);
  LINKGAUGE_CALL(end_capture, cuStreamEndCapture);
  LINKGAUGE_CALL(instantiate_graph, cuGraphInstantiateWithFlags);
  LINKGAUGE_CALL(launch_graph, cuGraphLaunch);
  LINKGAUGE_CALL(destroy_ready_graph, cuGraphExecDestroy);
  LINKGAUGE_CALL(destroy_graph, cuGraphDestroy);
  LINKGAUGE_CALL(create_event, cuEventCreate);
  LINKGAUGE_CALL(destroy_event, cuEventDestroy_v2);
  LINKGAUGE_CALL(record_event, cuEventRecord);
  LINKGAUGE_CALL(wait_event, cuStreamWaitEvent);
  LINKGAUGE_CALL(synchronize_event, cuEventSynchronize);
  LINKGAUGE_CALL(elapsed_time, cuEventElapsedTime);
  LINKGAUGE_CALL(load_module, cuModuleLoadData);
  LINKGAUGE_CALL(unload_module, cuModuleUnload);
  LINKGAUGE_CALL(launch_kernel, cuLaunchKernel);
};

}  // namespace linkgauge
