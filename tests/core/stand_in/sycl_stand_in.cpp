// A stand-in for libDPCTLSyclInterface.so: GPUs that Level Zero and OpenCL both show, and a CPU. Copies are real, in
// the order of their queue, on its thread. Where a call fails, what it makes is nullptr, as DPCTL's is; DPCTLQueue_Wait
// tells the queue's handler.
#ifdef LINKGAUGE_VENDOR_HEADERS
#include <syclinterface/dpctl_service.h>
#include <syclinterface/dpctl_sycl_context_interface.h>
#include <syclinterface/dpctl_sycl_device_interface.h>
#include <syclinterface/dpctl_sycl_device_manager.h>
#include <syclinterface/dpctl_sycl_event_interface.h>
#include <syclinterface/dpctl_sycl_platform_interface.h>
#include <syclinterface/dpctl_sycl_queue_interface.h>
#include <syclinterface/dpctl_sycl_usm_interface.h>
#include <syclinterface/dpctl_utils.h>
#else
#include "sycl_types.h"
#endif

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "answers.h"

using namespace stand_in;  // NOLINT

namespace {

struct Device {
  int ordinal;
  bool is_gpu;
  DPCTLSyclBackendType backend;
};
struct Queue {
  Stream* stream;
  error_handler_callback* handler;
};
using Devices = std::vector<Device>;

template <typename Handle, typename Made>
Handle given_as(Made* made) {
  return reinterpret_cast<Handle>(made);
}
Device& device_of(DPCTLSyclDeviceRef device) { return *reinterpret_cast<Device*>(device); }
Queue& queue_of(DPCTLSyclQueueRef queue) { return *reinterpret_cast<Queue*>(queue); }
Devices& devices_of(DPCTLDeviceVectorRef vector) { return *reinterpret_cast<Devices*>(vector); }

Machine& machine() { return Machine::instance(); }
bool fails(const char* call) { return machine().fault(call) != 0; }

const char* text_of(const std::string& text) {
  auto* made = new char[text.size() + 1];
  std::memcpy(made, text.c_str(), text.size() + 1);
  return made;
}

// What was queued before it on the queue has been done when it completes.
DPCTLSyclEventRef event_after(DPCTLSyclQueueRef queue) {
  Event* event = machine().create_event();
  machine().record(event, queue_of(queue).stream);
  return given_as<DPCTLSyclEventRef>(event);
}

DPCTLSyclUSMRef memory_of(const char* call, Kind kind, std::size_t bytes, DPCTLSyclQueueRef queue) {
  if (fails(call)) return nullptr;
  return given_as<DPCTLSyclUSMRef>(
      static_cast<char*>(machine().allocate(kind, queue_of(queue).stream->device(), bytes)));
}

// A mistake of the caller's that a real library may crash on.
void must(bool right) {
  if (!right) std::abort();
}

}  // namespace

#define EXPORTED LINKGAUGE_STAND_IN_EXPORT

EXPORTED void DPCTLCString_Delete(const char* text) { delete[] text; }
EXPORTED const char* DPCTLService_GetDPCPPVersion() { return text_of("stand-in"); }

EXPORTED DPCTLDeviceVectorRef DPCTLDeviceMgr_GetDevices(int asked) {
  if (fails("DPCTLDeviceMgr_GetDevices")) return nullptr;
  auto* found = new Devices;
  for (const DPCTLSyclBackendType backend : {DPCTL_LEVEL_ZERO, DPCTL_OPENCL}) {
    if ((asked & backend) == 0) continue;
    for (int ordinal = 0; (asked & DPCTL_GPU) != 0 && ordinal < machine().settings().devices; ++ordinal) {
      found->push_back({ordinal, true, backend});
    }
    if ((asked & DPCTL_CPU) != 0 && backend == DPCTL_OPENCL) found->push_back({0, false, backend});
  }
  return given_as<DPCTLDeviceVectorRef>(found);
}
EXPORTED DPCTLDeviceVectorRef DPCTLDeviceVector_CreateFromArray(std::size_t count, DPCTLSyclDeviceRef* devices) {
  auto* made = new Devices;
  for (std::size_t i = 0; i < count; ++i) made->push_back(device_of(devices[i]));
  return given_as<DPCTLDeviceVectorRef>(made);
}
EXPORTED std::size_t DPCTLDeviceVector_Size(DPCTLDeviceVectorRef vector) { return devices_of(vector).size(); }
EXPORTED DPCTLSyclDeviceRef DPCTLDeviceVector_GetAt(DPCTLDeviceVectorRef vector, std::size_t index) {
  return given_as<DPCTLSyclDeviceRef>(new Device(devices_of(vector)[index]));
}
EXPORTED void DPCTLDeviceVector_Delete(DPCTLDeviceVectorRef vector) { delete &devices_of(vector); }

EXPORTED void DPCTLDevice_Delete(DPCTLSyclDeviceRef device) { delete &device_of(device); }
EXPORTED DPCTLSyclBackendType DPCTLDevice_GetBackend(DPCTLSyclDeviceRef device) { return device_of(device).backend; }
EXPORTED const char* DPCTLDevice_GetName(DPCTLSyclDeviceRef device) {
  return text_of(device_of(device).is_gpu ? "Stand-in GPU" : "Stand-in CPU");
}
EXPORTED const char* DPCTLDevice_GetVendor(DPCTLSyclDeviceRef) { return text_of("nobody"); }
EXPORTED const char* DPCTLDevice_GetDriverVersion(DPCTLSyclDeviceRef) { return text_of("1.0"); }
EXPORTED std::uint32_t DPCTLDevice_GetMaxComputeUnits(DPCTLSyclDeviceRef) { return 2; }
EXPORTED std::uint32_t DPCTLDevice_GetMaxClockFrequency(DPCTLSyclDeviceRef) { return 1000; }
EXPORTED std::uint64_t DPCTLDevice_GetGlobalMemSize(DPCTLSyclDeviceRef) { return machine().settings().memory_bytes; }
EXPORTED std::uint64_t DPCTLDevice_GetGlobalMemCacheSize(DPCTLSyclDeviceRef) { return 1U << 20; }
EXPORTED std::uint64_t DPCTLDevice_GetMaxMemAllocSize(DPCTLSyclDeviceRef) { return machine().settings().memory_bytes; }
EXPORTED std::size_t DPCTLDevice_GetProfilingTimerResolution(DPCTLSyclDeviceRef) { return 1; }
EXPORTED bool DPCTLDevice_HasAspect(DPCTLSyclDeviceRef device, DPCTLSyclAspectType aspect) {
  if (aspect == gpu) return device_of(device).is_gpu;
  return aspect != usm_shared_allocations || machine().settings().managed;
}
EXPORTED bool DPCTLDevice_CanAccessPeer(DPCTLSyclDeviceRef, DPCTLSyclDeviceRef, DPCTLPeerAccessType) {
  return machine().settings().peer;
}
// SYCL refuses a second time.
EXPORTED void DPCTLDevice_EnablePeerAccess(DPCTLSyclDeviceRef device, DPCTLSyclDeviceRef peer) {
  const std::string pair =
      "peer " + std::to_string(device_of(device).ordinal) + "-" + std::to_string(device_of(peer).ordinal);
  must(machine().calls(pair.c_str()) == 0);
  (void)machine().fault(pair.c_str());
}

// A backend is a platform, told by its number.
EXPORTED DPCTLSyclPlatformRef DPCTLDevice_GetPlatform(DPCTLSyclDeviceRef device) {
  return given_as<DPCTLSyclPlatformRef>(new int(device_of(device).backend));
}
EXPORTED bool DPCTLPlatform_AreEq(DPCTLSyclPlatformRef one, DPCTLSyclPlatformRef other) {
  return *reinterpret_cast<int*>(one) == *reinterpret_cast<int*>(other);
}
EXPORTED void DPCTLPlatform_Delete(DPCTLSyclPlatformRef platform) { delete reinterpret_cast<int*>(platform); }
EXPORTED const char* DPCTLPlatform_GetName(DPCTLSyclPlatformRef) { return text_of("Stand-in platform"); }
EXPORTED const char* DPCTLPlatform_GetVersion(DPCTLSyclPlatformRef) { return text_of("1"); }

EXPORTED DPCTLSyclContextRef DPCTLContext_CreateFromDevices(DPCTLDeviceVectorRef, error_handler_callback*, int) {
  return fails("DPCTLContext_CreateFromDevices") ? nullptr : given_as<DPCTLSyclContextRef>(new int(0));
}
EXPORTED void DPCTLContext_Delete(DPCTLSyclContextRef context) { delete reinterpret_cast<int*>(context); }

EXPORTED DPCTLSyclQueueRef DPCTLQueue_Create(DPCTLSyclContextRef, DPCTLSyclDeviceRef device,
                                             error_handler_callback* handler, int) {
  if (fails("DPCTLQueue_Create")) return nullptr;
  return given_as<DPCTLSyclQueueRef>(new Queue{machine().create_stream(device_of(device).ordinal), handler});
}
EXPORTED void DPCTLQueue_Delete(DPCTLSyclQueueRef queue) {
  must(machine().destroy_stream(queue_of(queue).stream));
  delete &queue_of(queue);
}
EXPORTED void DPCTLQueue_Wait(DPCTLSyclQueueRef queue) {
  queue_of(queue).stream->synchronize();
  if (const int wrong = machine().fault("DPCTLQueue_Wait"); wrong != 0) queue_of(queue).handler(wrong);
}
EXPORTED DPCTLSyclEventRef DPCTLQueue_Memcpy(DPCTLSyclQueueRef queue, void* target, const void* source,
                                             std::size_t bytes) {
  if (fails("DPCTLQueue_Memcpy")) return nullptr;
  (void)queue_copy(target, source, bytes, queue_of(queue).stream);
  return event_after(queue);
}
EXPORTED DPCTLSyclEventRef DPCTLQueue_SubmitBarrier(DPCTLSyclQueueRef queue) {
  return fails("DPCTLQueue_SubmitBarrier") ? nullptr : event_after(queue);
}
EXPORTED DPCTLSyclEventRef DPCTLQueue_SubmitBarrierForEvents(DPCTLSyclQueueRef queue, const DPCTLSyclEventRef* events,
                                                             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) machine().wait(queue_of(queue).stream, event_of(events[i]));
  return event_after(queue);
}

EXPORTED void DPCTLEvent_Delete(DPCTLSyclEventRef event) { must(machine().destroy_event(event_of(event))); }
EXPORTED void DPCTLEvent_Wait(DPCTLSyclEventRef event) { (void)machine().synchronize_event(event_of(event)); }
EXPORTED DPCTLSyclEventStatusType DPCTLEvent_GetCommandExecutionStatus(DPCTLSyclEventRef event) {
  return machine().completed(event_of(event)) ? DPCTL_COMPLETE : DPCTL_RUNNING;
}
EXPORTED std::uint64_t DPCTLEvent_GetProfilingInfoEnd(DPCTLSyclEventRef event) {
  (void)machine().synchronize_event(event_of(event));
  return static_cast<std::uint64_t>(event_of(event)->when_ns);
}

EXPORTED DPCTLSyclUSMRef DPCTLmalloc_device(std::size_t bytes, DPCTLSyclQueueRef queue) {
  return memory_of("DPCTLmalloc_device", Kind::kDevice, bytes, queue);
}
EXPORTED DPCTLSyclUSMRef DPCTLmalloc_host(std::size_t bytes, DPCTLSyclQueueRef queue) {
  return memory_of("DPCTLmalloc_host", Kind::kPinned, bytes, queue);
}
EXPORTED DPCTLSyclUSMRef DPCTLmalloc_shared(std::size_t bytes, DPCTLSyclQueueRef queue) {
  return memory_of("DPCTLmalloc_shared", Kind::kManaged, bytes, queue);
}
EXPORTED void DPCTLfree_with_context(DPCTLSyclUSMRef memory, DPCTLSyclContextRef) {
  must(machine().release(memory, Kind::kDevice) || machine().release(memory, Kind::kPinned));
}
