// A stand-in for libamdhip64.so with its hipRTC. Compiled a second time against the vendor's headers
// (LINKGAUGE_VENDOR_HEADERS), where any difference of a signature is an error.
#ifdef LINKGAUGE_VENDOR_HEADERS
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>
#else
#include "hip_types.h"
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "answers.h"

namespace {

using namespace stand_in;

struct CodeName {
  int code;
  const char* name;
  const char* text;
};
constexpr CodeName kCodeNames[] = {{0, "hipSuccess", "no error"},
                                   {1, "hipErrorInvalidValue", "invalid argument"},
                                   {2, "hipErrorOutOfMemory", "out of memory"},
                                   {35, "hipErrorInsufficientDriver", "driver version is insufficient"},
                                   {100, "hipErrorNoDevice", "no ROCm-capable device is detected"},
                                   {101, "hipErrorInvalidDevice", "invalid device ordinal"},
                                   {200, "hipErrorInvalidImage", "device kernel image is invalid"},
                                   {217, "hipErrorPeerAccessUnsupported", "peer access is not supported"},
                                   {400, "hipErrorInvalidHandle", "invalid resource handle"},
                                   {500, "hipErrorNotFound", "named symbol not found"},
                                   {600, "hipErrorNotReady", "device not ready"},
                                   {700, "hipErrorIllegalAddress", "an illegal memory access was encountered"}};
const CodeName& entry_of(int code) {
  for (const CodeName& entry : kCodeNames) {
    if (entry.code == code) return entry;
  }
  static constexpr CodeName kUnknown{999, "hipErrorUnknown", "unknown error"};
  return kUnknown;
}

thread_local int current = 0;  // HIP starts on device 0
hipError_t code(int value) { return static_cast<hipError_t>(value); }
int count_of_devices() {
  const char* shown = std::getenv("HIP_VISIBLE_DEVICES");
  return shown != nullptr && shown[0] == '\0' ? 0 : Machine::instance().settings().devices;
}
bool valid(int device) { return device >= 0 && device < count_of_devices(); }

}  // namespace

#define STAND_IN(name) LINKGAUGE_STAND_IN_EXPORT hipError_t name
#define FAULT(name) \
  if (const int wrong = Machine::instance().fault(#name); wrong != 0) return code(wrong)

STAND_IN(hipInit)(unsigned) {
  FAULT(hipInit);
  return code(count_of_devices() == 0 ? kNoDevice : 0);
}
STAND_IN(hipDriverGetVersion)(int* version) {
  FAULT(hipDriverGetVersion);
  *version = 60240092;
  return code(0);
}
STAND_IN(hipRuntimeGetVersion)(int* version) {
  FAULT(hipRuntimeGetVersion);
  *version = 60240091;
  return code(0);
}
LINKGAUGE_STAND_IN_EXPORT const char* hipGetErrorName(hipError_t error) {
  return entry_of(static_cast<int>(error)).name;
}
LINKGAUGE_STAND_IN_EXPORT const char* hipGetErrorString(hipError_t error) {
  return entry_of(static_cast<int>(error)).text;
}
STAND_IN(hipGetDeviceCount)(int* count) {
  FAULT(hipGetDeviceCount);
  *count = count_of_devices();
  return code(0);
}
STAND_IN(hipSetDevice)(int device) {
  FAULT(hipSetDevice);
  if (!valid(device)) return code(kInvalidDevice);
  current = device;
  return code(0);
}
STAND_IN(hipGetDevice)(int* device) {
  FAULT(hipGetDevice);
  *device = current;
  return code(0);
}
STAND_IN(hipDeviceGetName)(char* name, int length, hipDevice_t) {
  FAULT(hipDeviceGetName);
  std::snprintf(name, static_cast<std::size_t>(length), "Stand-in GCD");
  return code(0);
}
STAND_IN(hipDeviceGetUuid)(hipUUID* uuid, hipDevice_t device) {
  FAULT(hipDeviceGetUuid);
  std::memcpy(uuid->bytes, "0123456789abcde", 15);
  uuid->bytes[15] = static_cast<char>('0' + device);
  return code(0);
}
STAND_IN(hipDeviceTotalMem)(std::size_t* bytes, hipDevice_t) {
  FAULT(hipDeviceTotalMem);
  *bytes = Machine::instance().settings().memory_bytes;
  return code(0);
}
STAND_IN(hipDeviceGetAttribute)(int* value, hipDeviceAttribute_t which, int) {
  FAULT(hipDeviceGetAttribute);
  const int number = static_cast<int>(which);
  *value = number == 63 ? 4 : number == 19 ? 1 << 20 : 1;  // multiprocessors, bytes of L2
  const stand_in::Settings& settings = Machine::instance().settings();
  if (number == 9) *value = settings.concurrent ? 1 : 0;      // concurrent managed access
  if (number == 24) *value = settings.managed ? 1 : 0;        // managed memory
  if (number == 65) *value = settings.pageable != 0 ? 1 : 0;  // kernels reach pageable memory
  if (number == 66) *value = settings.pageable == 2 ? 1 : 0;  // by the host's page tables
  return code(0);
}
STAND_IN(hipDeviceGetPCIBusId)(char* text, int length, int device) {
  FAULT(hipDeviceGetPCIBusId);
  const int place = Machine::instance().settings().devices - device;
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", 0xc0 + place);
  return code(0);
}
// As ROCm before 6 fills it: the name of the architecture with its features, somewhere inside.
STAND_IN(hipGetDeviceProperties)(hipDeviceProp_t* properties, int) {
  FAULT(hipGetDeviceProperties);
  const std::string name = Machine::instance().settings().gfx + ":sramecc+:xnack-";
  std::memset(properties, 0, sizeof(*properties));
  std::memcpy(reinterpret_cast<char*>(properties) + 396, name.c_str(), name.size() + 1);
  return code(0);
}
STAND_IN(hipDeviceCanAccessPeer)(int* possible, int, int) {
  FAULT(hipDeviceCanAccessPeer);
  *possible = Machine::instance().settings().peer ? 1 : 0;
  return code(0);
}
STAND_IN(hipDeviceEnablePeerAccess)(int, unsigned) {
  FAULT(hipDeviceEnablePeerAccess);
  return code(0);
}
ANSWERS(hipError_t, hipMemGetInfo, (std::size_t * free_bytes, std::size_t* total_bytes),
        memory_info(current, free_bytes, total_bytes))
ANSWERS(hipError_t, hipMalloc, (void** memory, std::size_t bytes), allocate(memory, Kind::kDevice, current, bytes))
ANSWERS(hipError_t, hipFree, (void* memory), release(memory, Kind::kDevice))
ANSWERS(hipError_t, hipHostMalloc, (void** memory, std::size_t bytes, unsigned),
        allocate(memory, Kind::kPinned, current, bytes))
ANSWERS(hipError_t, hipHostFree, (void* memory), release(memory, Kind::kPinned))
STAND_IN(hipHostRegister)(void* memory, std::size_t bytes, unsigned) {
  FAULT(hipHostRegister);
  return code(Machine::instance().register_host(memory, bytes) ? 0 : kInvalidValue);
}
ANSWERS(hipError_t, hipHostUnregister, (void* memory), release(memory, Kind::kRegistered))
STAND_IN(hipHostGetDevicePointer)(void** seen, void* memory, unsigned) {
  FAULT(hipHostGetDevicePointer);
  *seen = memory;
  return code(0);
}
ANSWERS(hipError_t, hipMallocManaged, (void** memory, std::size_t bytes, unsigned),
        allocate(memory, Kind::kManaged, current, bytes))
STAND_IN(hipMemPrefetchAsync)(const void* memory, std::size_t bytes, int to, hipStream_t stream) {
  FAULT(hipMemPrefetchAsync);
  const bool known = to == -1 || valid(to);
  if (!known || stream == nullptr || !Machine::instance().is_managed(memory, bytes)) return code(kInvalidValue);
  stream_of(stream)->push([] {});
  return code(0);
}
STAND_IN(hipMemAdvise)(const void* memory, std::size_t bytes, hipMemoryAdvise advice, int place) {
  FAULT(hipMemAdvise);
  const bool known = static_cast<int>(advice) >= 1 && static_cast<int>(advice) <= 6 && (place == -1 || valid(place));
  return code(known && Machine::instance().is_managed(memory, bytes) ? 0 : kInvalidValue);
}
ANSWERS(hipError_t, hipMemGetAddressRange, (hipDeviceptr_t * base, std::size_t* bytes, hipDeviceptr_t memory),
        address_range(base, bytes, memory))
ANSWERS(hipError_t, hipIpcGetMemHandle, (hipIpcMemHandle_t * handle, void* memory), share(handle, memory))
// As ROCm before 5.3: the flag is 0.
ANSWERS(hipError_t, hipIpcOpenMemHandle, (void** memory, hipIpcMemHandle_t handle, unsigned flags),
        flags != 0                        ? int{kInvalidValue}
        : opened(memory, handle, current) ? 0
                                          : int{kInvalidHandle})
ANSWERS(hipError_t, hipIpcCloseMemHandle, (void* memory), release(memory, Kind::kOpened))
ANSWERS(hipError_t, hipMemcpy, (void* target, const void* source, std::size_t bytes, hipMemcpyKind),
        copy(target, source, bytes))
ANSWERS(hipError_t, hipMemcpyAsync,
        (void* target, const void* source, std::size_t bytes, hipMemcpyKind kind, hipStream_t stream),
        static_cast<int>(kind) != 4 ? int{kInvalidValue} : queue_copy(target, source, bytes, stream_of(stream)))
ANSWERS(hipError_t, hipMemcpyPeerAsync,
        (void* target, int to, const void* source, int from, std::size_t bytes, hipStream_t stream),
        !valid(to) || !valid(from) ? int{kInvalidDevice} : queue_copy(target, source, bytes, stream_of(stream)))
ANSWERS(hipError_t, hipStreamCreateWithFlags, (hipStream_t * stream, unsigned), create_stream(stream, current))
ANSWERS(hipError_t, hipDeviceGetStreamPriorityRange, (int* least, int* greatest), stream_priorities(least, greatest))
ANSWERS(hipError_t, hipStreamCreateWithPriority, (hipStream_t * stream, unsigned, int priority),
        create_stream(stream, current, priority))
ANSWERS(hipError_t, hipStreamDestroy, (hipStream_t stream), destroy_stream(stream_of(stream)))
STAND_IN(hipStreamSynchronize)(hipStream_t stream) {
  FAULT(hipStreamSynchronize);
  if (stream != nullptr) stream_of(stream)->synchronize();
  return code(0);
}
ANSWERS(hipError_t, hipStreamQuery, (hipStream_t stream), query(stream_of(stream)))
ANSWERS(hipError_t, hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode), begin_capture(stream_of(stream)))
ANSWERS(hipError_t, hipStreamEndCapture, (hipStream_t stream, hipGraph_t* graph), end_capture(stream_of(stream), graph))
ANSWERS(hipError_t, hipGraphInstantiateWithFlags, (hipGraphExec_t * ready, hipGraph_t graph, unsigned long long),
        instantiate(ready, captured_of(graph)))
ANSWERS(hipError_t, hipGraphLaunch, (hipGraphExec_t graph, hipStream_t stream),
        launch_graph(captured_of(graph), stream_of(stream)))
ANSWERS(hipError_t, hipGraphExecDestroy, (hipGraphExec_t graph), destroy(captured_of(graph), true))
ANSWERS(hipError_t, hipGraphDestroy, (hipGraph_t graph), destroy(captured_of(graph), false))
ANSWERS(hipError_t, hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned),
        wait(stream_of(stream), event_of(event)))
ANSWERS(hipError_t, hipEventCreateWithFlags, (hipEvent_t * event, unsigned), create_event(event))
ANSWERS(hipError_t, hipEventDestroy, (hipEvent_t event), destroy_event(event_of(event)))
// HIP records on streams of the current device only.
ANSWERS(hipError_t, hipEventRecord, (hipEvent_t event, hipStream_t stream),
        stream != nullptr && stream_of(stream)->device() != current ? int{kInvalidHandle}
                                                                    : record(event_of(event), stream_of(stream)))
STAND_IN(hipEventSynchronize)(hipEvent_t event) {
  FAULT(hipEventSynchronize);
  return code(Machine::instance().synchronize_event(event_of(event)) ? 0 : kInvalidHandle);
}
ANSWERS(hipError_t, hipEventElapsedTime, (float* milliseconds, hipEvent_t start, hipEvent_t stop),
        elapsed(milliseconds, event_of(start), event_of(stop)))
ANSWERS(hipError_t, hipModuleLoadData, (hipModule_t * module, const void* image),
        load_module(module, image, Machine::instance().settings().gfx))
ANSWERS(hipError_t, hipModuleUnload, (hipModule_t module), unload_module(module))
ANSWERS(hipError_t, hipModuleGetFunction, (hipFunction_t * function, hipModule_t module, const char* name),
        find_kernel(function, module, name))
ANSWERS(hipError_t, hipModuleLaunchKernel,
        (hipFunction_t function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
         unsigned shared_bytes, hipStream_t stream, void** arguments, void**),
        launch(function, blocks, threads, shared_bytes, stream_of(stream), arguments, current, kInvalidHandle))

// --- hipRTC, as ROCm before 5.3 has it: in the runtime's own library
// --------------------------------------------------

namespace {

hiprtcResult rtc(int value) { return static_cast<hiprtcResult>(value); }
std::string* image_of(hiprtcProgram program) { return reinterpret_cast<std::string*>(program); }

}  // namespace

#define RTC_STAND_IN(name) LINKGAUGE_STAND_IN_EXPORT hiprtcResult name

RTC_STAND_IN(hiprtcVersion)(int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return rtc(0);
}
LINKGAUGE_STAND_IN_EXPORT const char* hiprtcGetErrorString(hiprtcResult result) {
  return static_cast<int>(result) == 6 ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_SUCCESS";
}
RTC_STAND_IN(hiprtcCreateProgram)(hiprtcProgram* program, const char*, const char*, int, const char**, const char**) {
  *program = reinterpret_cast<hiprtcProgram>(new std::string);
  return rtc(0);
}
// gfx942 aborts the process, as ROCm 5.2 does; gfx999 is an ordinary error.
RTC_STAND_IN(hiprtcCompileProgram)(hiprtcProgram program, int count, const char** options) {
  constexpr char kOption[] = "--offload-arch=";
  for (int i = 0; i < count; ++i) {
    if (std::strncmp(options[i], kOption, sizeof(kOption) - 1) != 0) continue;
    const std::string architecture = options[i] + sizeof(kOption) - 1;
    if (architecture == "gfx942") std::abort();
    if (architecture == "gfx999") return rtc(6);
    *image_of(program) = stand_in::image_for(architecture);
  }
  return rtc(image_of(program)->empty() ? 5 : 0);
}
RTC_STAND_IN(hiprtcGetCodeSize)(hiprtcProgram program, std::size_t* size) {
  *size = image_of(program)->size();
  return rtc(0);
}
RTC_STAND_IN(hiprtcGetCode)(hiprtcProgram program, char* image) {
  std::memcpy(image, image_of(program)->data(), image_of(program)->size());
  return rtc(0);
}
RTC_STAND_IN(hiprtcGetProgramLogSize)(hiprtcProgram, std::size_t* size) {
  *size = sizeof("unknown target");
  return rtc(0);
}
RTC_STAND_IN(hiprtcGetProgramLog)(hiprtcProgram, char* log) {
  std::memcpy(log, "unknown target", sizeof("unknown target"));
  return rtc(0);
}
RTC_STAND_IN(hiprtcDestroyProgram)(hiprtcProgram* program) {
  delete image_of(*program);
  *program = nullptr;
  return rtc(0);
}
