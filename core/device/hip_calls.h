// The HIP runtime under the names that GpuCalls uses.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "device/gpu_calls.h"
#include "device/hip_api.h"

namespace linkgauge {

struct HipVendor {
  using Api = hip::Api;
  using Result = hip::Result;
  using Address = void*;
  using IpcHandle = hip::IpcHandle;
  using State = bool;  // whether this process has made the device current

  static constexpr RuntimeKind kKind = RuntimeKind::kHip;
  static constexpr Result kSuccess = hip::kSuccess;
  static constexpr Result kNotReady = hip::kNotReady;
  static constexpr Result kOutOfMemory = hip::kOutOfMemory;
  static constexpr unsigned kPinnedFlags = hip::kHostMallocPortable | hip::kHostMallocMapped;
  // Coherent unless asked otherwise, as HIP itself does; non-coherent is what write-combined asks for here.
  static constexpr unsigned kWriteCombinedFlag = hip::kHostMallocNonCoherent;
  static constexpr unsigned kManagedFlags = hip::kMemAttachGlobal;
  static constexpr unsigned kRegisterFlags = hip::kHostRegisterPortable | hip::kHostRegisterMapped;
  static constexpr unsigned kStreamFlags = hip::kStreamNonBlocking;
  static constexpr unsigned kEventFlags = hip::kEventDefault;
  static constexpr int kCaptureMode = hip::kCaptureThreadLocal;
  static constexpr int kReadMostly = hip::kAdviseReadMostly;
  static constexpr int kPreferredLocation = hip::kAdvisePreferredLocation;
  static constexpr int kAccessedBy = hip::kAdviseAccessedBy;
  static constexpr hip::Attribute kMultiprocessorCount = hip::kMultiprocessorCount;
  static constexpr hip::Attribute kPageableMemoryAccess = hip::kPageableMemoryAccess;
  static constexpr char kPageableMemoryAccessName[] = "hipDeviceAttributePageableMemoryAccess";
  static constexpr hip::Attribute kPageableUsesHostPageTables = hip::kPageableUsesHostPageTables;
  static constexpr hip::Attribute kL2CacheBytes = hip::kL2CacheBytes;
  static constexpr std::array<std::pair<const char*, hip::Attribute>, 8> kTold{{
      {"clock_khz", hip::kClockRateKhz},
      {"memory_clock_khz", hip::kMemoryClockRateKhz},
      {"memory_bus_bits", hip::kMemoryBusWidthBits},
      {"ecc", hip::kEccEnabled},
      {"managed_memory_concurrent", hip::kConcurrentManagedAccess},
      {"managed_memory_direct_from_host", hip::kDirectManagedFromHost},
      {"pageable_memory_access", hip::kPageableMemoryAccess},
      {"large_bar", hip::kIsLargeBar},
  }};

  static Address address(const void* memory) { return const_cast<void*>(memory); }
  static void* pointer(Address memory) { return memory; }
  static std::string error_name(const Api& api, Result result) { return api.hipGetErrorName(result); }
  static std::string error_text(const Api& api, Result result) { return api.hipGetErrorString(result); }

  LINKGAUGE_CALL(device_count, hipGetDeviceCount);
  LINKGAUGE_CALL(pci_address, hipDeviceGetPCIBusId);
  LINKGAUGE_CALL(device_name, hipDeviceGetName);
  LINKGAUGE_CALL(total_memory, hipDeviceTotalMem);
  LINKGAUGE_CALL(device_attribute, hipDeviceGetAttribute);
  LINKGAUGE_CALL(can_access_peer, hipDeviceCanAccessPeer);
  LINKGAUGE_CALL(memory_info, hipMemGetInfo);
  LINKGAUGE_CALL(allocate, hipMalloc);
  LINKGAUGE_CALL(free, hipFree);
  LINKGAUGE_CALL(allocate_pinned, hipHostMalloc);
  LINKGAUGE_CALL(free_pinned, hipHostFree);
  LINKGAUGE_CALL(allocate_managed, hipMallocManaged);
  LINKGAUGE_CALL(register_host, hipHostRegister);
  LINKGAUGE_CALL(unregister_host, hipHostUnregister);
  LINKGAUGE_CALL(seen_from_device, hipHostGetDevicePointer);
  LINKGAUGE_CALL(address_range, hipMemGetAddressRange);
  LINKGAUGE_CALL(share, hipIpcGetMemHandle);
  LINKGAUGE_CALL(close_shared, hipIpcCloseMemHandle);
  LINKGAUGE_CALL(create_stream, hipStreamCreateWithFlags);
  LINKGAUGE_CALL(stream_priorities, hipDeviceGetStreamPriorityRange);
  LINKGAUGE_CALL(create_stream_of_priority, hipStreamCreateWithPriority);
  LINKGAUGE_CALL(destroy_stream, hipStreamDestroy);
  LINKGAUGE_CALL(synchronize_stream, hipStreamSynchronize);
  LINKGAUGE_CALL(query_stream, hipStreamQuery);
  LINKGAUGE_CALL(begin_capture, hipStreamBeginCapture);
  LINKGAUGE_CALL(end_capture, hipStreamEndCapture);
  LINKGAUGE_CALL(instantiate_graph, hipGraphInstantiateWithFlags);
  LINKGAUGE_CALL(launch_graph, hipGraphLaunch);
  LINKGAUGE_CALL(destroy_ready_graph, hipGraphExecDestroy);
  LINKGAUGE_CALL(destroy_graph, hipGraphDestroy);
  LINKGAUGE_CALL(create_event, hipEventCreateWithFlags);
  LINKGAUGE_CALL(destroy_event, hipEventDestroy);
  LINKGAUGE_CALL(record_event, hipEventRecord);
  LINKGAUGE_CALL(wait_event, hipStreamWaitEvent);
  LINKGAUGE_CALL(synchronize_event, hipEventSynchronize);
  LINKGAUGE_CALL(elapsed_time, hipEventElapsedTime);
  LINKGAUGE_CALL(load_module, hipModuleLoadData);
  LINKGAUGE_CALL(unload_module, hipModuleUnload);
  LINKGAUGE_CALL(launch_kernel, hipModuleLaunchKernel);
};

}  // namespace linkgauge
