// The table for DPCTL's C API of SYCL against its headers. Nothing runs: a difference does not compile.
#include "device/sycl_api.h"
//
#include <syclinterface/dpctl_service.h>
#include <syclinterface/dpctl_sycl_context_interface.h>
#include <syclinterface/dpctl_sycl_device_interface.h>
#include <syclinterface/dpctl_sycl_device_manager.h>
#include <syclinterface/dpctl_sycl_event_interface.h>
#include <syclinterface/dpctl_sycl_platform_interface.h>
#include <syclinterface/dpctl_sycl_queue_interface.h>
#include <syclinterface/dpctl_sycl_usm_interface.h>
#include <syclinterface/dpctl_utils.h>

#include "same_abi.h"

namespace linkgauge::sycl {
namespace {

static_assert(kCuda == DPCTL_CUDA && kLevelZero == DPCTL_LEVEL_ZERO && kOpenCl == DPCTL_OPENCL && kHip == DPCTL_HIP);
static_assert(kCpu == DPCTL_CPU && kGpu == DPCTL_GPU);
static_assert(kAspectGpu == ::gpu && kQueueProfiling == queue_profiling && kUsmDevice == usm_device_allocations);
static_assert(kUsmHost == usm_host_allocations && kUsmShared == usm_shared_allocations);
static_assert(kAccessSupported == access_supported);
static_assert(kEnableProfiling == DPCTL_ENABLE_PROFILING && kInOrder == DPCTL_IN_ORDER);
static_assert(kComplete == DPCTL_COMPLETE);

#define LINKGAUGE_COMPARE(name, type) \
  static_assert(SameAbi<type, std::remove_pointer_t<decltype(&::name)>>::value, #name " differs from the header");
LINKGAUGE_SYCL_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE)

}  // namespace
}  // namespace linkgauge::sycl
