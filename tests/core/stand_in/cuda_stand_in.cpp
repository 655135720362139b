// A stand-in for libcuda.so.1. Compiled a second time against the vendor's cuda.h (LINKGAUGE_VENDOR_HEADERS), where any
// difference of a signature is an error.
#ifdef LINKGAUGE_VENDOR_HEADERS
#include <cuda.h>
#else
#include "cuda_types.h"
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

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
  kInvalidContext = 201,
  kPeerAccessUnsupported = 217,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kLaunchFailed = 719,
  kPeerAccessAlreadyEnabled = 704,
};
struct CodeName {
  int code;
  const char* name;
  const char* text;
};
constexpr CodeName kCodeNames[] = {{0, "CUDA_SUCCESS", "no error"},
                                   {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
                                   {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
                                   {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
                                   {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
                                   {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
                                   {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
                                   {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
                                   {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported"},
                                   {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported"},
                                   {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
                                   {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
                                   {600, "CUDA_ERROR_NOT_READY", "device not ready"},
                                   {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
                                   {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
                                   {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
                                   {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
                                   {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver"}};

thread_local int current = -1;  // contexts are a device's ordinal plus one
CUresult code(int value) { return static_cast<CUresult>(value); }
CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device + 1)); }
int device_of(CUcontext context) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1; }
void* pointer(CUdeviceptr memory) { return reinterpret_cast<void*>(memory); }
CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }
stand_in::Stream* stream_of(CUstream stream) { return reinterpret_cast<stand_in::Stream*>(stream); }
stand_in::Event* event_of(CUevent event) { return reinterpret_cast<stand_in::Event*>(event); }

// Ordinals of the machine that CUDA_VISIBLE_DEVICES leaves, in its order.
std::vector<int> visible() {
  const int count = Machine::instance().settings().devices;
  std::vector<int> shown;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < count; ++i) shown.push_back(i);
    return shown;
  }
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    const int ordinal = std::atoi(part.c_str());
    if (part.empty() || ordinal < 0 || ordinal >= count) break;
    shown.push_back(ordinal);
  }
  return shown;
}
bool valid(int device) { return device >= 0 && device < static_cast<int>(visible().size()); }

int attribute_of(int which) {
  const stand_in::Settings& settings = Machine::instance().settings();
  switch (which) {
    case 16:  // multiprocessors
      return 4;
    case 38:  // bytes of L2
      return 1 << 20;
    case 75:
      return settings.architecture / 10;
    case 76:
      return settings.architecture % 10;
    case 83:  // managed memory
      return settings.managed ? 1 : 0;
    case 88:  // kernels reach pageable memory
      return settings.pageable != 0 ? 1 : 0;
    case 100:  // by the host's page tables
      return settings.pageable == 2 ? 1 : 0;
    case 89:  // concurrent managed access
      return settings.concurrent ? 1 : 0;
    case 97:  // shared memory a block, opted in
      return 232448;
    default:
      return 1;
  }
}

// Copies take the path that the driver's would: in order on the stream.
CUresult queue_copy(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  if (stream == nullptr) return code(kInvalidHandle);
  stream_of(stream)->push([=] { std::memmove(pointer(target), pointer(source), bytes); });
  return code(0);
}

// Of a memory location or of a device that older calls name, -1 for the host.
bool is_place(int type, int id) { return type == 2 || (type == 1 && valid(id)); }
bool is_place(int device) { return device == -1 || valid(device); }

CUresult taken(const char* call, CUdeviceptr memory, std::size_t bytes, bool known) {
  if (const int wrong = Machine::instance().fault(call); wrong != 0) return code(wrong);
  return code(known && bytes > 0 && Machine::instance().is_managed(pointer(memory), bytes) ? 0 : kInvalidValue);
}

CUresult queue_prefetch(const char* call, CUdeviceptr memory, std::size_t bytes, bool known, CUstream stream) {
  const CUresult result = taken(call, memory, bytes, known && stream != nullptr);
  if (result == code(0)) stream_of(stream)->push([] {});
  return result;
}

using Captured = std::vector<std::function<void()>>;

}  // namespace

#define STAND_IN(name) LINKGAUGE_STAND_IN_EXPORT CUresult CUDAAPI name
#define FAULT(name) \
  if (const int wrong = Machine::instance().fault(#name); wrong != 0) return code(wrong)

STAND_IN(cuInit)(unsigned) {
  FAULT(cuInit);
  return code(visible().empty() ? kNoDevice : 0);
}
STAND_IN(cuDriverGetVersion)(int* version) {
  FAULT(cuDriverGetVersion);
  *version = Machine::instance().settings().driver;
  return code(0);
}
STAND_IN(cuGetErrorName)(CUresult error, const char** text) {
  for (const CodeName& entry : kCodeNames) {
    if (entry.code != static_cast<int>(error)) continue;
    *text = entry.name;
    return code(0);
  }
  return code(kInvalidValue);
}
STAND_IN(cuGetErrorString)(CUresult error, const char** text) {
  for (const CodeName& entry : kCodeNames) {
    if (entry.code != static_cast<int>(error)) continue;
    *text = entry.text;
    return code(0);
  }
  return code(kInvalidValue);
}
STAND_IN(cuDeviceGetCount)(int* count) {
  FAULT(cuDeviceGetCount);
  *count = static_cast<int>(visible().size());
  return code(0);
}
STAND_IN(cuDeviceGet)(CUdevice* device, int ordinal) {
  FAULT(cuDeviceGet);
  if (!valid(ordinal)) return code(kInvalidDevice);
  *device = ordinal;
  return code(0);
}
STAND_IN(cuDeviceGetName)(char* name, int length, CUdevice) {
  FAULT(cuDeviceGetName);
  std::snprintf(name, static_cast<std::size_t>(length), "Stand-in GPU");
  return code(0);
}
STAND_IN(cuDeviceGetUuid_v2)(CUuuid* uuid, CUdevice device) {
  FAULT(cuDeviceGetUuid_v2);
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(16 * visible()[static_cast<std::size_t>(device)] + i);
  return code(0);
}
STAND_IN(cuDeviceTotalMem_v2)(std::size_t* bytes, CUdevice) {
  FAULT(cuDeviceTotalMem_v2);
  *bytes = Machine::instance().settings().memory_bytes;
  return code(0);
}
STAND_IN(cuDeviceGetAttribute)(int* value, CUdevice_attribute which, CUdevice device) {
  FAULT(cuDeviceGetAttribute);
  if (!valid(device)) return code(kInvalidDevice);
  *value = attribute_of(static_cast<int>(which));
  return code(0);
}
// The last device of the machine has the lowest address, so that CUDA's order and that of PCI differ.
STAND_IN(cuDeviceGetPCIBusId)(char* text, int length, CUdevice device) {
  FAULT(cuDeviceGetPCIBusId);
  const int place = Machine::instance().settings().devices - visible()[static_cast<std::size_t>(device)];
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", 0x1a + place);
  return code(0);
}
STAND_IN(cuDeviceCanAccessPeer)(int* possible, CUdevice, CUdevice) {
  FAULT(cuDeviceCanAccessPeer);
  *possible = Machine::instance().settings().peer ? 1 : 0;
  return code(0);
}
STAND_IN(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device) {
  FAULT(cuDevicePrimaryCtxRetain);
  if (!valid(device)) return code(kInvalidDevice);
  *context = context_of(device);
  return code(0);
}
STAND_IN(cuDevicePrimaryCtxRelease_v2)(CUdevice) {
  FAULT(cuDevicePrimaryCtxRelease_v2);
  return code(0);
}
STAND_IN(cuCtxSetCurrent)(CUcontext context) {
  FAULT(cuCtxSetCurrent);
  current = device_of(context);
  return code(0);
}
STAND_IN(cuCtxGetCurrent)(CUcontext* context) {
  FAULT(cuCtxGetCurrent);
  *context = context_of(current);
  return code(0);
}
STAND_IN(cuCtxEnablePeerAccess)(CUcontext, unsigned) {
  FAULT(cuCtxEnablePeerAccess);
  return code(Machine::instance().calls("cuCtxEnablePeerAccess") > 2 ? kPeerAccessAlreadyEnabled : 0);
}
STAND_IN(cuMemGetInfo_v2)(std::size_t* free_bytes, std::size_t* total_bytes) {
  FAULT(cuMemGetInfo_v2);
  if (current < 0) return code(kInvalidContext);
  *free_bytes = Machine::instance().free_bytes(current);
  *total_bytes = Machine::instance().settings().memory_bytes;
  return code(0);
}
STAND_IN(cuMemAlloc_v2)(CUdeviceptr* memory, std::size_t bytes) {
  FAULT(cuMemAlloc_v2);
  if (current < 0) return code(kInvalidContext);
  *memory = address(Machine::instance().allocate(Kind::kDevice, current, bytes));
  return code(*memory == 0 ? kOutOfMemory : 0);
}
STAND_IN(cuMemFree_v2)(CUdeviceptr memory) {
  FAULT(cuMemFree_v2);
  return code(Machine::instance().release(pointer(memory), Kind::kDevice) ? 0 : kInvalidValue);
}
STAND_IN(cuMemHostAlloc)(void** memory, std::size_t bytes, unsigned) {
  FAULT(cuMemHostAlloc);
  if (current < 0) return code(kInvalidContext);
  *memory = Machine::instance().allocate(Kind::kPinned, current, bytes);
  return code(*memory == nullptr ? kOutOfMemory : 0);
}
STAND_IN(cuMemFreeHost)(void* memory) {
  FAULT(cuMemFreeHost);
  return code(Machine::instance().release(memory, Kind::kPinned) ? 0 : kInvalidValue);
}
STAND_IN(cuMemHostRegister_v2)(void* memory, std::size_t bytes, unsigned) {
  FAULT(cuMemHostRegister_v2);
  return code(Machine::instance().register_host(memory, bytes) ? 0 : kInvalidValue);
}
STAND_IN(cuMemHostUnregister)(void* memory) {
  FAULT(cuMemHostUnregister);
  return code(Machine::instance().release(memory, Kind::kRegistered) ? 0 : kInvalidValue);
}
STAND_IN(cuMemHostGetDevicePointer_v2)(CUdeviceptr* seen, void* memory, unsigned) {
  FAULT(cuMemHostGetDevicePointer_v2);
  *seen = address(memory);
  return code(0);
}
STAND_IN(cuMemAllocManaged)(CUdeviceptr* memory, std::size_t bytes, unsigned) {
  FAULT(cuMemAllocManaged);
  *memory = address(Machine::instance().allocate(Kind::kManaged, current, bytes));
  return code(*memory == 0 ? kOutOfMemory : 0);
}
STAND_IN(cuMemPrefetchAsync_v2)
(CUdeviceptr memory, std::size_t bytes, CUmemLocation to, unsigned flags, CUstream stream) {
  const bool known = flags == 0 && is_place(static_cast<int>(to.type), to.id);
  return queue_prefetch("cuMemPrefetchAsync_v2", memory, bytes, known, stream);
}
STAND_IN(cuMemAdvise_v2)(CUdeviceptr memory, std::size_t bytes, CUmem_advise advice, CUmemLocation place) {
  const bool known = static_cast<int>(advice) >= 1 && static_cast<int>(advice) <= 6;
  return taken("cuMemAdvise_v2", memory, bytes, known && is_place(static_cast<int>(place.type), place.id));
}
#ifndef LINKGAUGE_VENDOR_HEADERS  // where these names are those of newer functions
STAND_IN(cuMemPrefetchAsync)(CUdeviceptr memory, std::size_t bytes, CUdevice to, CUstream stream) {
  return queue_prefetch("cuMemPrefetchAsync", memory, bytes, is_place(to), stream);
}
STAND_IN(cuMemAdvise)(CUdeviceptr memory, std::size_t bytes, CUmem_advise advice, CUdevice place) {
  const bool known = advice >= 1 && advice <= 6;
  return taken("cuMemAdvise", memory, bytes, known && is_place(place));
}
#endif
STAND_IN(cuMemGetAddressRange_v2)(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr memory) {
  FAULT(cuMemGetAddressRange_v2);
  void* found = nullptr;
  stand_in::Allocation allocation{};
  if (!Machine::instance().find(pointer(memory), &found, &allocation)) return code(kInvalidValue);
  *base = address(found);
  *bytes = allocation.bytes;
  return code(0);
}
STAND_IN(cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr memory) {
  FAULT(cuIpcGetMemHandle);
  stand_in::Handle made{};
  if (!Machine::instance().share(pointer(memory), &made)) return code(kInvalidValue);
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle->reserved, &made, sizeof(made));
  return code(0);
}
STAND_IN(cuIpcOpenMemHandle_v2)(CUdeviceptr* memory, CUipcMemHandle handle, unsigned) {
  FAULT(cuIpcOpenMemHandle_v2);
  stand_in::Handle given{};
  std::memcpy(&given, handle.reserved, sizeof(given));
  *memory = address(Machine::instance().open(given, current));
  return code(*memory == 0 ? kInvalidContext : 0);
}
STAND_IN(cuIpcCloseMemHandle)(CUdeviceptr memory) {
  FAULT(cuIpcCloseMemHandle);
  return code(Machine::instance().release(pointer(memory), Kind::kOpened) ? 0 : kInvalidValue);
}
STAND_IN(cuMemcpy)(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) {
  FAULT(cuMemcpy);
  std::memmove(pointer(target), pointer(source), bytes);
  return code(0);
}
STAND_IN(cuMemcpyAsync)(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  FAULT(cuMemcpyAsync);
  return queue_copy(target, source, bytes, stream);
}
STAND_IN(cuMemcpyPeerAsync)
(CUdeviceptr target, CUcontext to, CUdeviceptr source, CUcontext from, std::size_t bytes, CUstream stream) {
  FAULT(cuMemcpyPeerAsync);
  if (to == nullptr || from == nullptr) return code(kInvalidContext);
  return queue_copy(target, source, bytes, stream);
}
STAND_IN(cuStreamCreate)(CUstream* stream, unsigned) {
  FAULT(cuStreamCreate);
  if (current < 0) return code(kInvalidContext);
  *stream = reinterpret_cast<CUstream>(Machine::instance().create_stream(current));
  return code(0);
}
STAND_IN(cuStreamDestroy_v2)(CUstream stream) {
  FAULT(cuStreamDestroy_v2);
  return code(Machine::instance().destroy_stream(stream_of(stream)) ? 0 : kInvalidHandle);
}
STAND_IN(cuStreamSynchronize)(CUstream stream) {
  FAULT(cuStreamSynchronize);
  if (stream != nullptr) stream_of(stream)->synchronize();
  return code(Machine::instance().lost());
}
STAND_IN(cuStreamQuery)(CUstream stream) {
  FAULT(cuStreamQuery);
  return code(stream_of(stream)->idle() ? Machine::instance().lost() : kNotReady);
}
STAND_IN(cuStreamBeginCapture_v2)(CUstream stream, CUstreamCaptureMode) {
  FAULT(cuStreamBeginCapture_v2);
  return code(stream_of(stream)->begin_capture() ? 0 : kInvalidValue);
}
STAND_IN(cuStreamEndCapture)(CUstream stream, CUgraph* graph) {
  FAULT(cuStreamEndCapture);
  *graph = reinterpret_cast<CUgraph>(stream_of(stream)->end_capture().release());
  return code(*graph != nullptr ? 0 : kInvalidValue);
}
// A graph is what was pushed; one that is ready is a copy of it.
STAND_IN(cuGraphInstantiateWithFlags)(CUgraphExec* ready, CUgraph graph, unsigned long long) {
  FAULT(cuGraphInstantiateWithFlags);
  *ready = reinterpret_cast<CUgraphExec>(new Captured(*reinterpret_cast<Captured*>(graph)));
  Machine::instance().count_graph(1);
  return code(0);
}
STAND_IN(cuGraphLaunch)(CUgraphExec graph, CUstream stream) {
  FAULT(cuGraphLaunch);
  for (const auto& work : *reinterpret_cast<Captured*>(graph)) stream_of(stream)->push(work);
  return code(0);
}
STAND_IN(cuGraphExecDestroy)(CUgraphExec graph) {
  FAULT(cuGraphExecDestroy);
  delete reinterpret_cast<Captured*>(graph);
  Machine::instance().count_graph(-1);
  return code(0);
}
STAND_IN(cuGraphDestroy)(CUgraph graph) {
  FAULT(cuGraphDestroy);
  delete reinterpret_cast<Captured*>(graph);
  return code(0);
}
STAND_IN(cuStreamWaitEvent)(CUstream stream, CUevent event, unsigned) {
  FAULT(cuStreamWaitEvent);
  Machine::instance().wait(stream_of(stream), event_of(event));
  return code(0);
}
STAND_IN(cuEventCreate)(CUevent* event, unsigned) {
  FAULT(cuEventCreate);
  if (current < 0) return code(kInvalidContext);
  *event = reinterpret_cast<CUevent>(Machine::instance().create_event());
  return code(0);
}
STAND_IN(cuEventDestroy_v2)(CUevent event) {
  FAULT(cuEventDestroy_v2);
  return code(Machine::instance().destroy_event(event_of(event)) ? 0 : kInvalidHandle);
}
STAND_IN(cuEventRecord)(CUevent event, CUstream stream) {
  FAULT(cuEventRecord);
  if (stream == nullptr) return code(kInvalidHandle);
  Machine::instance().record(event_of(event), stream_of(stream));
  return code(0);
}
STAND_IN(cuEventSynchronize)(CUevent event) {
  FAULT(cuEventSynchronize);
  const bool known = Machine::instance().synchronize_event(event_of(event));
  return code(known ? Machine::instance().lost() : kInvalidHandle);
}
STAND_IN(cuEventElapsedTime)(float* milliseconds, CUevent start, CUevent stop) {
  FAULT(cuEventElapsedTime);
  if (!Machine::instance().completed(event_of(start)) || !Machine::instance().completed(event_of(stop)))
    return code(kNotReady);
  *milliseconds = static_cast<float>(static_cast<double>(event_of(stop)->when_ns - event_of(start)->when_ns) / 1e6);
  return code(0);
}
STAND_IN(cuModuleLoadData)(CUmodule* module, const void* image) {
  FAULT(cuModuleLoadData);
  const std::string architecture = "sm_" + std::to_string(Machine::instance().settings().architecture);
  *module = static_cast<CUmodule>(Machine::instance().load_module(image, architecture));
  return code(*module == nullptr ? kInvalidImage : 0);
}
STAND_IN(cuModuleUnload)(CUmodule module) {
  FAULT(cuModuleUnload);
  return code(Machine::instance().unload_module(module) ? 0 : kInvalidHandle);
}
STAND_IN(cuModuleGetFunction)(CUfunction* function, CUmodule module, const char* name) {
  FAULT(cuModuleGetFunction);
  *function = reinterpret_cast<CUfunction>(Machine::instance().find_kernel(module, name));
  return code(*function == nullptr ? kNotFound : 0);
}
STAND_IN(cuFuncGetAttribute)(int* value, CUfunction_attribute, CUfunction) {
  FAULT(cuFuncGetAttribute);
  *value = 32;
  return code(0);
}
STAND_IN(cuFuncSetAttribute)(CUfunction, CUfunction_attribute, int) {
  FAULT(cuFuncSetAttribute);
  return code(0);
}
STAND_IN(cuLaunchKernel)
(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned shared_bytes,
 CUstream stream, void** arguments, void**) {
  FAULT(cuLaunchKernel);
  if (function == nullptr || stream == nullptr) return code(kInvalidHandle);
  if (stream_of(stream)->device() != current) return code(kInvalidContext);  // as strict as any driver may be
  auto* kernel = reinterpret_cast<stand_in::Kernel*>(function);
  return code(Machine::instance().launch(kernel, blocks, threads, shared_bytes, stream_of(stream), arguments)
                  ? 0
                  : kInvalidValue);
}
