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

#define LINKGAUGE_HIP_CALL(role, cuda_name, hip_name) static constexpr auto role = &Api::hip_name;
  LINKGAUGE_GPU_CALLS(LINKGAUGE_HIP_CALL)
#undef LINKGAUGE_HIP_CALL
};

}  // namespace linkgauge
