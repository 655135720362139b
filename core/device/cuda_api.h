// The CUDA driver's functions that are used, as one table of names and signatures over libcuda.so.1.
//
// No header of CUDA is needed to build: types are restated here with the same size and passing convention, and
// tests/core/vendor_headers/ compiles the table against cuda.h. Names are the versioned ones that cuda.h maps plain
// names to; the plain ones are an older ABI.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "base/symbols.h"

namespace linkgauge::cuda {

using Result = int;                        // CUresult
using Device = int;                        // CUdevice
using Attribute = int;                     // CUdevice_attribute
using Context = void*;                     // CUcontext
using DevicePointer = unsigned long long;  // CUdeviceptr, 64-bit platforms
using Stream = void*;                      // CUstream
using Event = void*;                       // CUevent
using Module = void*;                      // CUmodule
using Function = void*;                    // CUfunction
using Graph = void*;                       // CUgraph
using GraphExec = void*;                   // CUgraphExec
struct Uuid {
  char bytes[16];
};
struct IpcHandle {
  char reserved[64];
};
struct Location {  // CUmemLocation
  int type;
  int id;
};
using MemoryHandle = unsigned long long;  // CUmemGenericAllocationHandle
struct AllocationProperties {             // CUmemAllocationProp
  int type;
  int handle_types;
  Location location;
  void* of_windows;
  unsigned char compression;
  unsigned char reached_by_nics;
  unsigned short usage;
  unsigned char reserved[4];
};
struct Access {  // CUmemAccessDesc
  Location location;
  int rights;
};
struct FabricHandle {  // CUmemFabricHandle
  unsigned char data[64];
};

// REQUIRED(name, type): the driver is too old without it. OPTIONAL(name, type): nullptr where absent.
#define LINKGAUGE_CUDA_API(REQUIRED, OPTIONAL)                                                                       \
  REQUIRED(cuInit, Result(unsigned))                                                                                 \
  REQUIRED(cuDriverGetVersion, Result(int*))                                                                         \
  REQUIRED(cuGetErrorName, Result(Result, const char**))                                                             \
  REQUIRED(cuGetErrorString, Result(Result, const char**))                                                           \
  REQUIRED(cuDeviceGetCount, Result(int*))                                                                           \
  REQUIRED(cuDeviceGet, Result(Device*, int))                                                                        \
  REQUIRED(cuDeviceGetName, Result(char*, int, Device))                                                              \
  REQUIRED(cuDeviceGetUuid_v2, Result(Uuid*, Device))                                                                \
  REQUIRED(cuDeviceTotalMem_v2, Result(std::size_t*, Device))                                                        \
  REQUIRED(cuDeviceGetAttribute, Result(int*, Attribute, Device))                                                    \
  REQUIRED(cuDeviceGetPCIBusId, Result(char*, int, Device))                                                          \
  REQUIRED(cuDeviceCanAccessPeer, Result(int*, Device, Device))                                                      \
  REQUIRED(cuDevicePrimaryCtxRetain, Result(Context*, Device))                                                       \
  REQUIRED(cuDevicePrimaryCtxRelease_v2, Result(Device))                                                             \
  REQUIRED(cuCtxSetCurrent, Result(Context))                                                                         \
  REQUIRED(cuCtxGetCurrent, Result(Context*))                                                                        \
  REQUIRED(cuCtxEnablePeerAccess, Result(Context, unsigned))                                                         \
  REQUIRED(cuMemGetInfo_v2, Result(std::size_t*, std::size_t*))                                                      \
  REQUIRED(cuMemAlloc_v2, Result(DevicePointer*, std::size_t))                                                       \
  REQUIRED(cuMemFree_v2, Result(DevicePointer))                                                                      \
  REQUIRED(cuMemHostAlloc, Result(void**, std::size_t, unsigned))                                                    \
  REQUIRED(cuMemFreeHost, Result(void*))                                                                             \
  REQUIRED(cuMemHostRegister_v2, Result(void*, std::size_t, unsigned))                                               \
  REQUIRED(cuMemHostUnregister, Result(void*))                                                                       \
  REQUIRED(cuMemHostGetDevicePointer_v2, Result(DevicePointer*, void*, unsigned))                                    \
  REQUIRED(cuMemAllocManaged, Result(DevicePointer*, std::size_t, unsigned))                                         \
  REQUIRED(cuMemGetAddressRange_v2, Result(DevicePointer*, std::size_t*, DevicePointer))                             \
  REQUIRED(cuIpcGetMemHandle, Result(IpcHandle*, DevicePointer))                                                     \
  REQUIRED(cuIpcOpenMemHandle_v2, Result(DevicePointer*, IpcHandle, unsigned))                                       \
  REQUIRED(cuIpcCloseMemHandle, Result(DevicePointer))                                                               \
  REQUIRED(cuMemcpy, Result(DevicePointer, DevicePointer, std::size_t))                                              \
  REQUIRED(cuMemcpyAsync, Result(DevicePointer, DevicePointer, std::size_t, Stream))                                 \
  REQUIRED(cuMemcpyPeerAsync, Result(DevicePointer, Context, DevicePointer, Context, std::size_t, Stream))           \
  REQUIRED(cuStreamCreate, Result(Stream*, unsigned))                                                                \
  REQUIRED(cuStreamDestroy_v2, Result(Stream))                                                                       \
  REQUIRED(cuStreamSynchronize, Result(Stream))                                                                      \
  REQUIRED(cuStreamQuery, Result(Stream))                                                                            \
  REQUIRED(cuStreamWaitEvent, Result(Stream, Event, unsigned))                                                       \
  REQUIRED(cuEventCreate, Result(Event*, unsigned))                                                                  \
  REQUIRED(cuEventDestroy_v2, Result(Event))                                                                         \
  REQUIRED(cuEventRecord, Result(Event, Stream))                                                                     \
  REQUIRED(cuEventSynchronize, Result(Event))                                                                        \
  REQUIRED(cuEventElapsedTime, Result(float*, Event, Event))                                                         \
  REQUIRED(cuModuleLoadData, Result(Module*, const void*))                                                           \
  REQUIRED(cuModuleUnload, Result(Module))                                                                           \
  REQUIRED(cuModuleGetFunction, Result(Function*, Module, const char*))                                              \
  REQUIRED(cuFuncGetAttribute, Result(int*, int, Function))                                                          \
  REQUIRED(cuFuncSetAttribute, Result(Function, int, int))                                                           \
  REQUIRED(cuLaunchKernel, Result(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
                                  Stream, void**, void**))                                                           \
  OPTIONAL(cuFuncLoad, Result(Function))                                                                             \
  OPTIONAL(cuMemCreate, Result(MemoryHandle*, std::size_t, const AllocationProperties*, unsigned long long))         \
  OPTIONAL(cuMemRelease, Result(MemoryHandle))                                                                       \
  OPTIONAL(cuMemAddressReserve, Result(DevicePointer*, std::size_t, std::size_t, DevicePointer, unsigned long long)) \
  OPTIONAL(cuMemAddressFree, Result(DevicePointer, std::size_t))                                                     \
  OPTIONAL(cuMemMap, Result(DevicePointer, std::size_t, std::size_t, MemoryHandle, unsigned long long))              \
  OPTIONAL(cuMemUnmap, Result(DevicePointer, std::size_t))                                                           \
  OPTIONAL(cuMemSetAccess, Result(DevicePointer, std::size_t, const Access*, std::size_t))                           \
  OPTIONAL(cuMemGetAllocationGranularity, Result(std::size_t*, const AllocationProperties*, int))                    \
  OPTIONAL(cuMemRetainAllocationHandle, Result(MemoryHandle*, void*))                                                \
  OPTIONAL(cuMemExportToShareableHandle, Result(void*, MemoryHandle, int, unsigned long long))                       \
  OPTIONAL(cuMemImportFromShareableHandle, Result(MemoryHandle*, void*, int))                                        \
  OPTIONAL(cuMemPrefetchAsync_v2, Result(DevicePointer, std::size_t, Location, unsigned, Stream))                    \
  OPTIONAL(cuMemAdvise_v2, Result(DevicePointer, std::size_t, int, Location))                                        \
  OPTIONAL(cuCtxGetStreamPriorityRange, Result(int*, int*))                                                          \
  OPTIONAL(cuStreamCreateWithPriority, Result(Stream*, unsigned, int))                                               \
  OPTIONAL(cuStreamBeginCapture_v2, Result(Stream, int))                                                             \
  OPTIONAL(cuStreamEndCapture, Result(Stream, Graph*))                                                               \
  OPTIONAL(cuGraphInstantiateWithFlags, Result(GraphExec*, Graph, unsigned long long))                               \
  OPTIONAL(cuGraphLaunch, Result(GraphExec, Stream))                                                                 \
  OPTIONAL(cuGraphExecDestroy, Result(GraphExec))                                                                    \
  OPTIONAL(cuGraphDestroy, Result(Graph))

// What drivers before CUDA 12.2 have in place of the _v2 calls: a device's ordinal, or kCpuDevice. cuda.h gives these
// names to newer functions, so tests/core/vendor_headers compares them in a file of their own.
#define LINKGAUGE_CUDA_API_BEFORE_12_2(OPTIONAL)                                   \
  OPTIONAL(cuMemPrefetchAsync, Result(DevicePointer, std::size_t, Device, Stream)) \
  OPTIONAL(cuMemAdvise, Result(DevicePointer, std::size_t, int, Device))

#define LINKGAUGE_CUDA_API_ALL(REQUIRED, OPTIONAL) \
  LINKGAUGE_CUDA_API(REQUIRED, OPTIONAL) LINKGAUGE_CUDA_API_BEFORE_12_2(OPTIONAL)

struct Api {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_CUDA_API_ALL)
};

// Values of cuda.h, tested against it.
inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kStubLibrary = 34;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kOperatingSystem = 304;
inline constexpr Result kNotReady = 600;
inline constexpr Result kPeerAccessAlreadyEnabled = 704;
inline constexpr Result kNotPermitted = 800;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kSystemDriverMismatch = 803;

inline constexpr Attribute kClockRateKhz = 13;
inline constexpr Attribute kMultiprocessorCount = 16;
inline constexpr Attribute kComputeMode = 20;
inline constexpr Attribute kEccEnabled = 32;
inline constexpr Attribute kMemoryClockRateKhz = 36;
inline constexpr Attribute kGlobalMemoryBusWidthBits = 37;
inline constexpr Attribute kL2CacheBytes = 38;
inline constexpr Attribute kAsyncEngineCount = 40;
inline constexpr Attribute kComputeCapabilityMajor = 75;
inline constexpr Attribute kComputeCapabilityMinor = 76;
inline constexpr Attribute kManagedMemory = 83;
inline constexpr Attribute kHostNativeAtomics = 86;
inline constexpr Attribute kPageableMemoryAccess = 88;
inline constexpr Attribute kConcurrentManagedAccess = 89;
inline constexpr Attribute kMaxSharedMemoryOptinBytes = 97;
inline constexpr Attribute kPageableUsesHostPageTables = 100;
inline constexpr Attribute kFabricHandles = 128;
inline constexpr Attribute kMulticast = 132;

inline constexpr int kFuncMaxDynamicSharedBytes = 8;  // CUfunction_attribute
inline constexpr int kFuncRegisters = 4;

inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocDeviceMap = 2;
inline constexpr unsigned kHostAllocWriteCombined = 4;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCaptureThreadLocal = 1;  // CUstreamCaptureMode
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kMemAttachGlobal = 1;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;

inline constexpr int kAllocationPinned = 1;    // CUmemAllocationType: stays on its device
inline constexpr int kHandleFabric = 8;        // CUmemAllocationHandleType
inline constexpr int kGranularityMinimum = 0;  // CUmemAllocationGranularity_flags
inline constexpr int kAccessReadWrite = 3;     // CUmemAccess_flags
inline constexpr int kLocationDevice = 1;      // CUmemLocationType
inline constexpr int kLocationHost = 2;
inline constexpr Device kCpuDevice = -1;
inline constexpr int kAdviseReadMostly = 1;  // CUmem_advise
inline constexpr int kAdvisePreferredLocation = 3;
inline constexpr int kAdviseAccessedBy = 5;

inline constexpr int kOldestDriver = 11040;  // as cuDriverGetVersion counts: 11.4 has every required function

}  // namespace linkgauge::cuda
