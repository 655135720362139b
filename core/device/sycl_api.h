// The functions of DPCTL's C API for SYCL that are used, as one table of names and signatures over
// libDPCTLSyclInterface.so (wheel dpctl).
//
// No header of DPCTL or SYCL is needed to build: types are restated here with the same size and passing convention, and
// tests/core/vendor_headers/ compiles the table against DPCTL's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/symbols.h"

namespace linkgauge::sycl {

using Device = void*;        // DPCTLSyclDeviceRef
using DeviceVector = void*;  // DPCTLDeviceVectorRef
using Platform = void*;      // DPCTLSyclPlatformRef
using Context = void*;       // DPCTLSyclContextRef
using Queue = void*;         // DPCTLSyclQueueRef
using Event = void*;         // DPCTLSyclEventRef
using Memory = void*;        // DPCTLSyclUSMRef
using Text = const char*;    // the caller's, to be given to DPCTLCString_Delete
using ErrorHandler = void(int code);

// REQUIRED(name, type): the library is too old without it. OPTIONAL(name, type): nullptr where absent.
#define LINKGAUGE_SYCL_API(REQUIRED, OPTIONAL)                                         \
  REQUIRED(DPCTLCString_Delete, void(Text))                                            \
  REQUIRED(DPCTLService_GetDPCPPVersion, Text())                                       \
  REQUIRED(DPCTLDeviceMgr_GetDevices, DeviceVector(int))                               \
  REQUIRED(DPCTLDeviceVector_CreateFromArray, DeviceVector(std::size_t, Device*))      \
  REQUIRED(DPCTLDeviceVector_Size, std::size_t(DeviceVector))                          \
  REQUIRED(DPCTLDeviceVector_GetAt, Device(DeviceVector, std::size_t))                 \
  REQUIRED(DPCTLDeviceVector_Delete, void(DeviceVector))                               \
  REQUIRED(DPCTLDevice_Delete, void(Device))                                           \
  REQUIRED(DPCTLDevice_GetBackend, int(Device))                                        \
  REQUIRED(DPCTLDevice_GetPlatform, Platform(Device))                                  \
  REQUIRED(DPCTLDevice_GetName, Text(Device))                                          \
  REQUIRED(DPCTLDevice_GetVendor, Text(Device))                                        \
  REQUIRED(DPCTLDevice_GetDriverVersion, Text(Device))                                 \
  REQUIRED(DPCTLDevice_GetMaxComputeUnits, std::uint32_t(Device))                      \
  REQUIRED(DPCTLDevice_GetMaxClockFrequency, std::uint32_t(Device))                    \
  REQUIRED(DPCTLDevice_GetGlobalMemSize, std::uint64_t(Device))                        \
  REQUIRED(DPCTLDevice_GetGlobalMemCacheSize, std::uint64_t(Device))                   \
  REQUIRED(DPCTLDevice_GetMaxMemAllocSize, std::uint64_t(Device))                      \
  REQUIRED(DPCTLDevice_GetProfilingTimerResolution, std::size_t(Device))               \
  REQUIRED(DPCTLDevice_HasAspect, bool(Device, int))                                   \
  REQUIRED(DPCTLPlatform_AreEq, bool(Platform, Platform))                              \
  REQUIRED(DPCTLPlatform_Delete, void(Platform))                                       \
  REQUIRED(DPCTLPlatform_GetName, Text(Platform))                                      \
  REQUIRED(DPCTLPlatform_GetVersion, Text(Platform))                                   \
  REQUIRED(DPCTLContext_CreateFromDevices, Context(DeviceVector, ErrorHandler*, int))  \
  REQUIRED(DPCTLContext_Delete, void(Context))                                         \
  REQUIRED(DPCTLQueue_Create, Queue(Context, Device, ErrorHandler*, int))              \
  REQUIRED(DPCTLQueue_Delete, void(Queue))                                             \
  REQUIRED(DPCTLQueue_Wait, void(Queue))                                               \
  REQUIRED(DPCTLQueue_Memcpy, Event(Queue, void*, const void*, std::size_t))           \
  REQUIRED(DPCTLQueue_SubmitBarrier, Event(Queue))                                     \
  REQUIRED(DPCTLQueue_SubmitBarrierForEvents, Event(Queue, const Event*, std::size_t)) \
  REQUIRED(DPCTLEvent_Delete, void(Event))                                             \
  REQUIRED(DPCTLEvent_Wait, void(Event))                                               \
  REQUIRED(DPCTLEvent_GetCommandExecutionStatus, int(Event))                           \
  REQUIRED(DPCTLEvent_GetProfilingInfoEnd, std::uint64_t(Event))                       \
  REQUIRED(DPCTLmalloc_device, Memory(std::size_t, Queue))                             \
  REQUIRED(DPCTLmalloc_host, Memory(std::size_t, Queue))                               \
  REQUIRED(DPCTLmalloc_shared, Memory(std::size_t, Queue))                             \
  REQUIRED(DPCTLfree_with_context, void(Memory, Context))                              \
  OPTIONAL(DPCTLDevice_CanAccessPeer, bool(Device, Device, int))                       \
  OPTIONAL(DPCTLDevice_EnablePeerAccess, void(Device, Device))

struct Api {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_SYCL_API)
};

// Values of dpctl_sycl_enum_types.h, tested against it.
inline constexpr int kCuda = 1 << 16;  // DPCTLSyclBackendType
inline constexpr int kLevelZero = 1 << 17;
inline constexpr int kOpenCl = 1 << 18;
inline constexpr int kHip = 1 << 19;
inline constexpr int kCpu = 1 << 2;  // DPCTLSyclDeviceType
inline constexpr int kGpu = 1 << 4;
inline constexpr int kAspectGpu = 2;  // DPCTLSyclAspectType
inline constexpr int kQueueProfiling = 11;
inline constexpr int kUsmDevice = 12;
inline constexpr int kUsmHost = 13;
inline constexpr int kUsmShared = 14;
inline constexpr int kAccessSupported = 0;  // DPCTLPeerAccessType
inline constexpr int kEnableProfiling = 1;  // DPCTLQueuePropertyType
inline constexpr int kInOrder = 2;
inline constexpr int kComplete = 3;  // DPCTLSyclEventStatusType

// The library, opened for the life of the process. OpenCL's loader looks for drivers in /etc alone, where no wheel
// writes: where Intel's OpenCL for CPUs lies beside SYCL's libraries and the user named no driver, it is named here
// (OCL_ICD_FILENAMES).
class Library {
 public:
  // `folders` before the loader's own places. Throws Unsupported with what was not found, and the fix.
  explicit Library(const std::vector<std::string>& folders);
  const Api& api() const { return api_; }

 private:
  SharedLibrary library_;
  Api api_;
};

}  // namespace linkgauge::sycl
