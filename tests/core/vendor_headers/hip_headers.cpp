// The tables for ROCm's libraries against the vendor's own headers. Nothing runs: a difference does not compile.
#include "device/hip_api.h"
#include "device/rtc_api.h"
//
#define __HIP_PLATFORM_AMD__
#define __HIP_DISABLE_CPP_FUNCTIONS__  // templates by the same names
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>

#include "same_abi.h"

namespace {

using namespace linkgauge;       // NOLINT
using namespace linkgauge::hip;  // NOLINT: the types that the table's macro names

#define LINKGAUGE_COMPARE(name, type) \
  static_assert(SameAbi<type, std::remove_pointer_t<decltype(&::name)>>::value, #name " differs from the header");
#define LINKGAUGE_COMPARE_LATER(name, type) LINKGAUGE_COMPARE(name, type)
LINKGAUGE_HIP_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE_LATER)

namespace of_hiprtc {
using rtc::Program;
using rtc::Result;
#define LINKGAUGE_COMPARE_RTC(member, nvrtc_name, hiprtc_name, type) LINKGAUGE_COMPARE(hiprtc_name, type)
LINKGAUGE_RTC_API(LINKGAUGE_COMPARE_RTC)
}  // namespace of_hiprtc

static_assert(sizeof(Uuid) == sizeof(hipUUID));
static_assert(sizeof(IpcHandle) == sizeof(hipIpcMemHandle_t) && alignof(IpcHandle) == alignof(hipIpcMemHandle_t));

static_assert(kSuccess == hipSuccess);
static_assert(kInvalidValue == hipErrorInvalidValue);
static_assert(kOutOfMemory == hipErrorOutOfMemory);
static_assert(kInsufficientDriver == hipErrorInsufficientDriver);
static_assert(kNoDevice == hipErrorNoDevice);
static_assert(kNotReady == hipErrorNotReady);
static_assert(kPeerAccessAlreadyEnabled == hipErrorPeerAccessAlreadyEnabled);

static_assert(kEccEnabled == hipDeviceAttributeEccEnabled);
static_assert(kClockRateKhz == hipDeviceAttributeClockRate);
static_assert(kConcurrentManagedAccess == hipDeviceAttributeConcurrentManagedAccess);
static_assert(kDirectManagedFromHost == hipDeviceAttributeDirectManagedMemAccessFromHost);
static_assert(kL2CacheBytes == hipDeviceAttributeL2CacheSize);
static_assert(kManagedMemory == hipDeviceAttributeManagedMemory);
static_assert(kMemoryBusWidthBits == hipDeviceAttributeMemoryBusWidth);
static_assert(kMemoryClockRateKhz == hipDeviceAttributeMemoryClockRate);
static_assert(kMultiprocessorCount == hipDeviceAttributeMultiprocessorCount);
static_assert(kPageableMemoryAccess == hipDeviceAttributePageableMemoryAccess);
static_assert(kPageableUsesHostPageTables == hipDeviceAttributePageableMemoryAccessUsesHostPageTables);
static_assert(kIsLargeBar == hipDeviceAttributeIsLargeBar);

static_assert(kCpuDevice == hipCpuDeviceId);
static_assert(kAdviseReadMostly == hipMemAdviseSetReadMostly);
static_assert(kAdvisePreferredLocation == hipMemAdviseSetPreferredLocation);
static_assert(kAdviseAccessedBy == hipMemAdviseSetAccessedBy);
static_assert(kCopyDefault == hipMemcpyDefault);
static_assert(kHostMallocPortable == hipHostMallocPortable);
static_assert(kHostMallocMapped == hipHostMallocMapped);
static_assert(kHostMallocNonCoherent == hipHostMallocNonCoherent);
static_assert(kHostRegisterPortable == hipHostRegisterPortable);
static_assert(kHostRegisterMapped == hipHostRegisterMapped);
static_assert(kStreamNonBlocking == hipStreamNonBlocking);
static_assert(kCaptureThreadLocal == hipStreamCaptureModeThreadLocal);
static_assert(kEventDefault == hipEventDefault);
static_assert(kMemAttachGlobal == hipMemAttachGlobal);

}  // namespace
