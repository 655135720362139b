// The HIP runtime's functions that are used, as one table of names and signatures over libamdhip64.so.
//
// No header of ROCm is needed to build; tests/core/vendor_headers/ compiles the table against hip_runtime_api.h.
// hipDeviceProp_t is not restated, since its layout changed with ROCm 6: attributes are asked for one by one.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "base/symbols.h"

namespace linkgauge::hip {

using Result = int;       // hipError_t
using Attribute = int;    // hipDeviceAttribute_t
using CopyKind = int;     // hipMemcpyKind
using Stream = void*;     // hipStream_t
using Graph = void*;      // hipGraph_t
using GraphExec = void*;  // hipGraphExec_t
using Event = void*;      // hipEvent_t
using Module = void*;     // hipModule_t
using Function = void*;   // hipFunction_t
struct Uuid {
  char bytes[16];
};
struct IpcHandle {
  char reserved[64];
};

// REQUIRED(name, type): ROCm is too old without it. OPTIONAL(name, type): nullptr where absent. hipDevice_t is int, an
// ordinal.
#define LINKGAUGE_HIP_API(REQUIRED, OPTIONAL)                                                                  \
  REQUIRED(hipInit, Result(unsigned))                                                                          \
  REQUIRED(hipDriverGetVersion, Result(int*))                                                                  \
  REQUIRED(hipRuntimeGetVersion, Result(int*))                                                                 \
  REQUIRED(hipGetErrorName, const char*(Result))                                                               \
  REQUIRED(hipGetErrorString, const char*(Result))                                                             \
  REQUIRED(hipGetDeviceCount, Result(int*))                                                                    \
  REQUIRED(hipSetDevice, Result(int))                                                                          \
  REQUIRED(hipGetDevice, Result(int*))                                                                         \
  REQUIRED(hipDeviceGetName, Result(char*, int, int))                                                          \
  REQUIRED(hipDeviceTotalMem, Result(std::size_t*, int))                                                       \
  REQUIRED(hipDeviceGetAttribute, Result(int*, Attribute, int))                                                \
  REQUIRED(hipDeviceGetPCIBusId, Result(char*, int, int))                                                      \
  REQUIRED(hipDeviceCanAccessPeer, Result(int*, int, int))                                                     \
  REQUIRED(hipDeviceEnablePeerAccess, Result(int, unsigned))                                                   \
  REQUIRED(hipMemGetInfo, Result(std::size_t*, std::size_t*))                                                  \
  REQUIRED(hipMalloc, Result(void**, std::size_t))                                                             \
  REQUIRED(hipFree, Result(void*))                                                                             \
  REQUIRED(hipHostMalloc, Result(void**, std::size_t, unsigned))                                               \
  REQUIRED(hipHostFree, Result(void*))                                                                         \
  REQUIRED(hipHostRegister, Result(void*, std::size_t, unsigned))                                              \
  REQUIRED(hipHostUnregister, Result(void*))                                                                   \
  REQUIRED(hipHostGetDevicePointer, Result(void**, void*, unsigned))                                           \
  REQUIRED(hipMallocManaged, Result(void**, std::size_t, unsigned))                                            \
  REQUIRED(hipMemGetAddressRange, Result(void**, std::size_t*, void*))                                         \
  REQUIRED(hipIpcGetMemHandle, Result(IpcHandle*, void*))                                                      \
  REQUIRED(hipIpcOpenMemHandle, Result(void**, IpcHandle, unsigned))                                           \
  REQUIRED(hipIpcCloseMemHandle, Result(void*))                                                                \
  REQUIRED(hipMemcpy, Result(void*, const void*, std::size_t, CopyKind))                                       \
  REQUIRED(hipMemcpyAsync, Result(void*, const void*, std::size_t, CopyKind, Stream))                          \
  REQUIRED(hipMemcpyPeerAsync, Result(void*, int, const void*, int, std::size_t, Stream))                      \
  REQUIRED(hipStreamCreateWithFlags, Result(Stream*, unsigned))                                                \
  REQUIRED(hipStreamDestroy, Result(Stream))                                                                   \
  REQUIRED(hipStreamSynchronize, Result(Stream))                                                               \
  REQUIRED(hipStreamQuery, Result(Stream))                                                                     \
  REQUIRED(hipStreamWaitEvent, Result(Stream, Event, unsigned))                                                \
  REQUIRED(hipEventCreateWithFlags, Result(Event*, unsigned))                                                  \
  REQUIRED(hipEventDestroy, Result(Event))                                                                     \
  REQUIRED(hipEventRecord, Result(Event, Stream))                                                              \
  REQUIRED(hipEventSynchronize, Result(Event))                                                                 \
  REQUIRED(hipEventElapsedTime, Result(float*, Event, Event))                                                  \
  REQUIRED(hipModuleLoadData, Result(Module*, const void*))                                                    \
  REQUIRED(hipModuleUnload, Result(Module))                                                                    \
  REQUIRED(hipModuleGetFunction, Result(Function*, Module, const char*))                                       \
  REQUIRED(hipModuleLaunchKernel, Result(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                                         unsigned, Stream, void**, void**))                                    \
  OPTIONAL(hipDeviceGetUuid, Result(Uuid*, int))                                                               \
  OPTIONAL(hipGetDeviceProperties, Result(void*, int))                                                         \
  OPTIONAL(hipMemPrefetchAsync, Result(const void*, std::size_t, int, Stream))                                 \
  OPTIONAL(hipMemAdvise, Result(const void*, std::size_t, int, int))                                           \
  OPTIONAL(hipDeviceGetStreamPriorityRange, Result(int*, int*))                                                \
  OPTIONAL(hipStreamCreateWithPriority, Result(Stream*, unsigned, int))                                        \
  OPTIONAL(hipStreamBeginCapture, Result(Stream, int))                                                         \
  OPTIONAL(hipStreamEndCapture, Result(Stream, Graph*))                                                        \
  OPTIONAL(hipGraphInstantiateWithFlags, Result(GraphExec*, Graph, unsigned long long))                        \
  OPTIONAL(hipGraphLaunch, Result(GraphExec, Stream))                                                          \
  OPTIONAL(hipGraphExecDestroy, Result(GraphExec))                                                             \
  OPTIONAL(hipGraphDestroy, Result(Graph))

// Name of hipGetDeviceProperties since ROCm 6, which 5.2's header does not have.
#define LINKGAUGE_HIP_API_SINCE_6(OPTIONAL) OPTIONAL(hipGetDevicePropertiesR0600, Result(void*, int))
#define LINKGAUGE_HIP_API_ALL(REQUIRED, OPTIONAL) \
  LINKGAUGE_HIP_API(REQUIRED, OPTIONAL) LINKGAUGE_HIP_API_SINCE_6(OPTIONAL)

struct Api {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_HIP_API_ALL)
};

// Where the library may be, newest first.
std::vector<std::string> library_names();

// Values of hip_runtime_api.h, tested against it.
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kInsufficientDriver = 35;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kNotReady = 600;
inline constexpr Result kPeerAccessAlreadyEnabled = 704;

inline constexpr Attribute kEccEnabled = 0;
inline constexpr Attribute kClockRateKhz = 5;
inline constexpr Attribute kConcurrentManagedAccess = 9;
inline constexpr Attribute kDirectManagedFromHost = 13;
inline constexpr Attribute kL2CacheBytes = 19;
inline constexpr Attribute kManagedMemory = 24;
inline constexpr Attribute kMemoryBusWidthBits = 59;
inline constexpr Attribute kMemoryClockRateKhz = 60;
inline constexpr Attribute kMultiprocessorCount = 63;
inline constexpr Attribute kPageableMemoryAccess = 65;
inline constexpr Attribute kPageableUsesHostPageTables = 66;
inline constexpr Attribute kIsLargeBar = 10011;

inline constexpr int kCpuDevice = -1;
inline constexpr int kAdviseReadMostly = 1;  // hipMemoryAdvise
inline constexpr int kAdvisePreferredLocation = 3;
inline constexpr int kAdviseAccessedBy = 5;

inline constexpr CopyKind kCopyDefault = 4;
inline constexpr unsigned kHostMallocPortable = 1;
inline constexpr unsigned kHostMallocMapped = 2;
inline constexpr unsigned kHostMallocNonCoherent = 0x80000000U;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterMapped = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCaptureThreadLocal = 1;  // hipStreamCaptureMode
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kMemAttachGlobal = 1;

}  // namespace linkgauge::hip
