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

#include "machine.h"

namespace {

using stand_in::Kind;
using stand_in::Machine;

enum Code : int {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
};
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
stand_in::Stream* stream_of(hipStream_t stream) { return reinterpret_cast<stand_in::Stream*>(stream); }
stand_in::Event* event_of(hipEvent_t event) { return reinterpret_cast<stand_in::Event*>(event); }
int count_of_devices() {
  const char* shown = std::getenv("HIP_VISIBLE_DEVICES");
  return shown != nullptr && shown[0] == '\0' ? 0 : Machine::instance().settings().devices;
}
bool valid(int device) { return device >= 0 && device < count_of_devices(); }

hipError_t queue_copy(void* target, const void* source, std::size_t bytes, hipStream_t stream) {
  if (stream == nullptr) return code(kInvalidHandle);
  stream_of(stream)->push([=] { std::memmove(target, source, bytes); });
  return code(0);
}

using Captured = std::vector<std::function<void()>>;

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
STAND_IN(hipMemGetInfo)(std::size_t* free_bytes, std::size_t* total_bytes) {
  FAULT(hipMemGetInfo);
  *free_bytes = Machine::instance().free_bytes(current);
  *total_bytes = Machine::instance().settings().memory_bytes;
  return code(0);
}
STAND_IN(hipMalloc)(void** memory, std::size_t bytes) {
  FAULT(hipMalloc);
  *memory = Machine::instance().allocate(Kind::kDevice, current, bytes);
  return code(*memory == nullptr ? kOutOfMemory : 0);
}
STAND_IN(hipFree)(void* memory) {
  FAULT(hipFree);
  return code(Machine::instance().release(memory, Kind::kDevice) ? 0 : kInvalidValue);
}
STAND_IN(hipHostMalloc)(void** memory, std::size_t bytes, unsigned) {
  FAULT(hipHostMalloc);
  *memory = Machine::instance().allocate(Kind::kPinned, current, bytes);
  return code(*memory == nullptr ? kOutOfMemory : 0);
}
STAND_IN(hipHostFree)(void* memory) {
  FAULT(hipHostFree);
  return code(Machine::instance().release(memory, Kind::kPinned) ? 0 : kInvalidValue);
}
STAND_IN(hipHostRegister)(void* memory, std::size_t bytes, unsigned) {
  FAULT(hipHostRegister);
  return code(Machine::instance().register_host(memory, bytes) ? 0 : kInvalidValue);
}
STAND_IN(hipHostUnregister)(void* memory) {
  FAULT(hipHostUnregister);
  return code(Machine::instance().release(memory, Kind::kRegistered) ? 0 : kInvalidValue);
}
STAND_IN(hipHostGetDevicePointer)(void** seen, void* memory, unsigned) {
  FAULT(hipHostGetDevicePointer);
  *seen = memory;
  return code(0);
}
STAND_IN(hipMallocManaged)(void** memory, std::size_t bytes, unsigned) {
  FAULT(hipMallocManaged);
  *memory = Machine::instance().allocate(Kind::kManaged, current, bytes);
  return code(*memory == nullptr ? kOutOfMemory : 0);
}
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
STAND_IN(hipMemGetAddressRange)(hipDeviceptr_t* base, std::size_t* bytes, hipDeviceptr_t memory) {
  FAULT(hipMemGetAddressRange);
  void* found = nullptr;
  stand_in::Allocation allocation{};
  if (!Machine::instance().find(memory, &found, &allocation)) return code(kInvalidValue);
  *base = found;
  *bytes = allocation.bytes;
  return code(0);
}
STAND_IN(hipIpcGetMemHandle)(hipIpcMemHandle_t* handle, void* memory) {
  FAULT(hipIpcGetMemHandle);
  stand_in::Handle made{};
  if (!Machine::instance().share(memory, &made)) return code(kInvalidValue);
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle->reserved, &made, sizeof(made));
  return code(0);
}
// As ROCm before 5.3: the flag is 0.
STAND_IN(hipIpcOpenMemHandle)(void** memory, hipIpcMemHandle_t handle, unsigned flags) {
  FAULT(hipIpcOpenMemHandle);
  if (flags != 0) return code(kInvalidValue);
  stand_in::Handle given{};
  std::memcpy(&given, handle.reserved, sizeof(given));
  *memory = Machine::instance().open(given, current);
  return code(*memory == nullptr ? kInvalidHandle : 0);
}
STAND_IN(hipIpcCloseMemHandle)(void* memory) {
  FAULT(hipIpcCloseMemHandle);
  return code(Machine::instance().release(memory, Kind::kOpened) ? 0 : kInvalidValue);
}
STAND_IN(hipMemcpy)(void* target, const void* source, std::size_t bytes, hipMemcpyKind) {
  FAULT(hipMemcpy);
  std::memmove(target, source, bytes);
  return code(0);
}
STAND_IN(hipMemcpyAsync)(void* target, const void* source, std::size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
  FAULT(hipMemcpyAsync);
  if (static_cast<int>(kind) != 4) return code(kInvalidValue);  // hipMemcpyDefault: by the addresses
  return queue_copy(target, source, bytes, stream);
}
STAND_IN(hipMemcpyPeerAsync)
(void* target, int to, const void* source, int from, std::size_t bytes, hipStream_t stream) {
  FAULT(hipMemcpyPeerAsync);
  if (!valid(to) || !valid(from)) return code(kInvalidDevice);
  return queue_copy(target, source, bytes, stream);
}
STAND_IN(hipStreamCreateWithFlags)(hipStream_t* stream, unsigned) {
  FAULT(hipStreamCreateWithFlags);
  *stream = reinterpret_cast<hipStream_t>(Machine::instance().create_stream(current));
  return code(0);
}
STAND_IN(hipStreamDestroy)(hipStream_t stream) {
  FAULT(hipStreamDestroy);
  return code(Machine::instance().destroy_stream(stream_of(stream)) ? 0 : kInvalidHandle);
}
STAND_IN(hipStreamSynchronize)(hipStream_t stream) {
  FAULT(hipStreamSynchronize);
  if (stream != nullptr) stream_of(stream)->synchronize();
  return code(0);
}
STAND_IN(hipStreamQuery)(hipStream_t stream) {
  FAULT(hipStreamQuery);
  return code(stream_of(stream)->idle() ? Machine::instance().lost() : kNotReady);
}
STAND_IN(hipStreamBeginCapture)(hipStream_t stream, hipStreamCaptureMode) {
  FAULT(hipStreamBeginCapture);
  return code(stream_of(stream)->begin_capture() ? 0 : kInvalidValue);
}
STAND_IN(hipStreamEndCapture)(hipStream_t stream, hipGraph_t* graph) {
  FAULT(hipStreamEndCapture);
  *graph = reinterpret_cast<hipGraph_t>(stream_of(stream)->end_capture().release());
  return code(*graph != nullptr ? 0 : kInvalidValue);
}
// A graph is what was pushed; one that is ready is a copy of it.
STAND_IN(hipGraphInstantiateWithFlags)(hipGraphExec_t* ready, hipGraph_t graph, unsigned long long) {
  FAULT(hipGraphInstantiateWithFlags);
  *ready = reinterpret_cast<hipGraphExec_t>(new Captured(*reinterpret_cast<Captured*>(graph)));
  Machine::instance().count_graph(1);
  return code(0);
}
STAND_IN(hipGraphLaunch)(hipGraphExec_t graph, hipStream_t stream) {
  FAULT(hipGraphLaunch);
  for (const auto& work : *reinterpret_cast<Captured*>(graph)) stream_of(stream)->push(work);
  return code(0);
}
STAND_IN(hipGraphExecDestroy)(hipGraphExec_t graph) {
  FAULT(hipGraphExecDestroy);
  delete reinterpret_cast<Captured*>(graph);
  Machine::instance().count_graph(-1);
  return code(0);
}
STAND_IN(hipGraphDestroy)(hipGraph_t graph) {
  FAULT(hipGraphDestroy);
  delete reinterpret_cast<Captured*>(graph);
  return code(0);
}
STAND_IN(hipStreamWaitEvent)(hipStream_t stream, hipEvent_t event, unsigned) {
  FAULT(hipStreamWaitEvent);
  Machine::instance().wait(stream_of(stream), event_of(event));
  return code(0);
}
STAND_IN(hipEventCreateWithFlags)(hipEvent_t* event, unsigned) {
  FAULT(hipEventCreateWithFlags);
  *event = reinterpret_cast<hipEvent_t>(Machine::instance().create_event());
  return code(0);
}
STAND_IN(hipEventDestroy)(hipEvent_t event) {
  FAULT(hipEventDestroy);
  return code(Machine::instance().destroy_event(event_of(event)) ? 0 : kInvalidHandle);
}
STAND_IN(hipEventRecord)(hipEvent_t event, hipStream_t stream) {
  FAULT(hipEventRecord);
  if (stream == nullptr) return code(kInvalidHandle);
  Machine::instance().record(event_of(event), stream_of(stream));
  return code(0);
}
STAND_IN(hipEventSynchronize)(hipEvent_t event) {
  FAULT(hipEventSynchronize);
  return code(Machine::instance().synchronize_event(event_of(event)) ? 0 : kInvalidHandle);
}
STAND_IN(hipEventElapsedTime)(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
  FAULT(hipEventElapsedTime);
  if (!Machine::instance().completed(event_of(start)) || !Machine::instance().completed(event_of(stop)))
    return code(kNotReady);
  *milliseconds = static_cast<float>(static_cast<double>(event_of(stop)->when_ns - event_of(start)->when_ns) / 1e6);
  return code(0);
}
STAND_IN(hipModuleLoadData)(hipModule_t* module, const void* image) {
  FAULT(hipModuleLoadData);
  *module = static_cast<hipModule_t>(Machine::instance().load_module(image, Machine::instance().settings().gfx));
  return code(*module == nullptr ? kInvalidImage : 0);
}
STAND_IN(hipModuleUnload)(hipModule_t module) {
  FAULT(hipModuleUnload);
  return code(Machine::instance().unload_module(module) ? 0 : kInvalidHandle);
}
STAND_IN(hipModuleGetFunction)(hipFunction_t* function, hipModule_t module, const char* name) {
  FAULT(hipModuleGetFunction);
  *function = reinterpret_cast<hipFunction_t>(Machine::instance().find_kernel(module, name));
  return code(*function == nullptr ? kNotFound : 0);
}
STAND_IN(hipModuleLaunchKernel)
(hipFunction_t function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
 unsigned shared_bytes, hipStream_t stream, void** arguments, void**) {
  FAULT(hipModuleLaunchKernel);
  if (function == nullptr || stream == nullptr) return code(kInvalidHandle);
  if (stream_of(stream)->device() != current) return code(kInvalidHandle);  // as strict as any driver may be
  auto* kernel = reinterpret_cast<stand_in::Kernel*>(function);
  return code(Machine::instance().launch(kernel, blocks, threads, shared_bytes, stream_of(stream), arguments)
                  ? 0
                  : kInvalidValue);
}

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
