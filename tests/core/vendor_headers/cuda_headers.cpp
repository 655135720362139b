// The tables for CUDA's libraries against the vendor's own headers. Nothing runs: a difference does not compile.
#include "device/cuda_api.h"
#include "device/nvml_api.h"
#include "device/rtc_api.h"
//
#include <cuda.h>
#include <nvml.h>
#include <nvrtc.h>

#include "same_abi.h"

namespace {

using namespace linkgauge;        // NOLINT
using namespace linkgauge::cuda;  // NOLINT: the types that the table's macro names

#define LINKGAUGE_COMPARE(name, type) \
  static_assert(SameAbi<type, std::remove_pointer_t<decltype(&::name)>>::value, #name " differs from the header");
#define LINKGAUGE_COMPARE_LATER(name, type) LINKGAUGE_COMPARE(name, type)
LINKGAUGE_CUDA_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE_LATER)

namespace of_nvml {
using namespace linkgauge::nvml;  // NOLINT
using nvml::Device;
using nvml::Result;
LINKGAUGE_NVML_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE)
}  // namespace of_nvml

namespace of_nvrtc {
using rtc::Program;
using rtc::Result;
#define LINKGAUGE_COMPARE_RTC(member, nvrtc_name, hiprtc_name, type) LINKGAUGE_COMPARE(nvrtc_name, type)
LINKGAUGE_RTC_API(LINKGAUGE_COMPARE_RTC)
}  // namespace of_nvrtc

static_assert(sizeof(Uuid) == sizeof(CUuuid));
static_assert(sizeof(Location) == sizeof(CUmemLocation) && alignof(Location) == alignof(CUmemLocation));
static_assert(offsetof(Location, type) == offsetof(CUmemLocation, type));
static_assert(offsetof(Location, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, handle_types) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, of_windows) == offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(AllocationProperties, compression) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(Access) == sizeof(CUmemAccessDesc));
static_assert(offsetof(Access, rights) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(FabricHandle) == sizeof(CUmemFabricHandle));
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle) && alignof(IpcHandle) == alignof(CUipcMemHandle));

static_assert(kSuccess == CUDA_SUCCESS);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kStubLibrary == CUDA_ERROR_STUB_LIBRARY);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kOperatingSystem == CUDA_ERROR_OPERATING_SYSTEM);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kPeerAccessAlreadyEnabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(kNotPermitted == CUDA_ERROR_NOT_PERMITTED);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kSystemDriverMismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);

static_assert(kClockRateKhz == CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
static_assert(kMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kComputeMode == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
static_assert(kEccEnabled == CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
static_assert(kMemoryClockRateKhz == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
static_assert(kGlobalMemoryBusWidthBits == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
static_assert(kL2CacheBytes == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(kAsyncEngineCount == CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
static_assert(kComputeCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kComputeCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kManagedMemory == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
static_assert(kHostNativeAtomics == CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED);
static_assert(kPageableMemoryAccess == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
static_assert(kPageableUsesHostPageTables == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
static_assert(kConcurrentManagedAccess == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
static_assert(kMaxSharedMemoryOptinBytes == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kFabricHandles == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
static_assert(kMulticast == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
static_assert(kFuncMaxDynamicSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kFuncRegisters == CU_FUNC_ATTRIBUTE_NUM_REGS);

static_assert(kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kHostAllocDeviceMap == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(kHostAllocWriteCombined == CU_MEMHOSTALLOC_WRITECOMBINED);
static_assert(kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kHostRegisterDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kEventDefault == CU_EVENT_DEFAULT);
static_assert(kMemAttachGlobal == CU_MEM_ATTACH_GLOBAL);
static_assert(kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kHandleFabric == CU_MEM_HANDLE_TYPE_FABRIC);
static_assert(kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kLocationHost == CU_MEM_LOCATION_TYPE_HOST);
static_assert(kCpuDevice == CU_DEVICE_CPU);
static_assert(kAdviseReadMostly == CU_MEM_ADVISE_SET_READ_MOSTLY);
static_assert(kAdvisePreferredLocation == CU_MEM_ADVISE_SET_PREFERRED_LOCATION);
static_assert(kAdviseAccessedBy == CU_MEM_ADVISE_SET_ACCESSED_BY);
static_assert(kIpcLazyEnablePeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

}  // namespace
