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

#include "answers.h"

namespace {

using namespace stand_in;

enum CudaCode : int {
  kInvalidContext = 201,
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
                                   {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
                                   {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver"}};

constexpr int kFabric = 8;      // CU_MEM_HANDLE_TYPE_FABRIC
thread_local int current = -1;  // contexts are a device's ordinal plus one
CUresult code(int value) { return static_cast<CUresult>(value); }
CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device + 1)); }
int device_of(CUcontext context) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1; }
void* pointer(CUdeviceptr memory) { return reinterpret_cast<void*>(memory); }
CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

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
    case 128:  // fabric handles
      return settings.fabric ? 1 : 0;
    case 97:  // shared memory a block, opted in
      return static_cast<int>(settings.shared_bytes);
    default:
      return 1;
  }
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
ANSWERS(CUresult, cuMemGetInfo_v2, (std::size_t * free_bytes, std::size_t* total_bytes),
        current < 0 ? int{kInvalidContext} : memory_info(current, free_bytes, total_bytes))
ANSWERS(CUresult, cuMemAlloc_v2, (CUdeviceptr * memory, std::size_t bytes),
        current < 0 ? int{kInvalidContext} : allocate(memory, Kind::kDevice, current, bytes))
ANSWERS(CUresult, cuMemFree_v2, (CUdeviceptr memory), release(pointer(memory), Kind::kDevice))
ANSWERS(CUresult, cuMemHostAlloc, (void** memory, std::size_t bytes, unsigned),
        current < 0 ? int{kInvalidContext} : allocate(memory, Kind::kPinned, current, bytes))
ANSWERS(CUresult, cuMemFreeHost, (void* memory), release(memory, Kind::kPinned))
STAND_IN(cuMemHostRegister_v2)(void* memory, std::size_t bytes, unsigned) {
  FAULT(cuMemHostRegister_v2);
  return code(Machine::instance().register_host(memory, bytes) ? 0 : kInvalidValue);
}
ANSWERS(CUresult, cuMemHostUnregister, (void* memory), release(memory, Kind::kRegistered))
STAND_IN(cuMemHostGetDevicePointer_v2)(CUdeviceptr* seen, void* memory, unsigned) {
  FAULT(cuMemHostGetDevicePointer_v2);
  *seen = address(memory);
  return code(0);
}
ANSWERS(CUresult, cuMemAllocManaged, (CUdeviceptr * memory, std::size_t bytes, unsigned),
        allocate(memory, Kind::kManaged, current, bytes))
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
ANSWERS(CUresult, cuMemGetAddressRange_v2, (CUdeviceptr * base, std::size_t* bytes, CUdeviceptr memory),
        address_range(base, bytes, pointer(memory)))
ANSWERS(CUresult, cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr memory), share(handle, pointer(memory)))
ANSWERS(CUresult, cuIpcOpenMemHandle_v2, (CUdeviceptr * memory, CUipcMemHandle handle, unsigned),
        opened(memory, handle, current) ? 0 : int{kInvalidContext})
ANSWERS(CUresult, cuIpcCloseMemHandle, (CUdeviceptr memory), release(pointer(memory), Kind::kOpened))
// Memory apart from its addresses; handles are of the fabric alone.
STAND_IN(cuMemGetAllocationGranularity)
(std::size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  FAULT(cuMemGetAllocationGranularity);
  *bytes = kPieceBytes;
  return code(0);
}
STAND_IN(cuMemCreate)
(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties, unsigned long long) {
  FAULT(cuMemCreate);
  if (static_cast<int>(properties->type) != 1 || static_cast<int>(properties->requestedHandleTypes) != kFabric ||
      !is_place(static_cast<int>(properties->location.type), properties->location.id)) {
    return code(kInvalidValue);
  }
  *handle = Machine::instance().make_physical(properties->location.id, bytes);
  return code(unless(*handle == 0, kOutOfMemory));
}
ANSWERS(CUresult, cuMemRelease, (CUmemGenericAllocationHandle handle),
        unless(!Machine::instance().hold(handle, -1), kInvalidValue))
ANSWERS(CUresult, cuMemAddressReserve,
        (CUdeviceptr * place, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long),
        unless((*place = address(Machine::instance().reserve(bytes))) == 0, kOutOfMemory))
ANSWERS(CUresult, cuMemAddressFree, (CUdeviceptr place, std::size_t bytes),
        unless(!Machine::instance().unreserve(pointer(place), bytes), kInvalidValue))
ANSWERS(CUresult, cuMemMap,
        (CUdeviceptr place, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle, unsigned long long),
        unless(!Machine::instance().map(pointer(place), bytes, handle), kInvalidValue))
ANSWERS(CUresult, cuMemUnmap, (CUdeviceptr place, std::size_t bytes),
        unless(!Machine::instance().unmap(pointer(place), bytes), kInvalidValue))
ANSWERS(CUresult, cuMemSetAccess,
        (CUdeviceptr place, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count),
        unless(count != 1 || static_cast<int>(access->flags) != 3 ||
                   !is_place(static_cast<int>(access->location.type), access->location.id) ||
                   !Machine::instance().let_reach(pointer(place), bytes),
               kInvalidValue))
STAND_IN(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle* handle, void* place) {
  FAULT(cuMemRetainAllocationHandle);
  *handle = Machine::instance().mapped_at(place);
  return code(unless(!Machine::instance().hold(*handle, 1), kInvalidValue));
}
STAND_IN(cuMemExportToShareableHandle)
(void* shown, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long) {
  FAULT(cuMemExportToShareableHandle);
  stand_in::Handle made{};
  if (static_cast<int>(type) != kFabric || !Machine::instance().shown(handle, &made)) return code(kInvalidValue);
  std::memset(shown, 0, sizeof(CUmemFabricHandle));
  std::memcpy(shown, &made, sizeof(made));
  return code(0);
}
STAND_IN(cuMemImportFromShareableHandle)
(CUmemGenericAllocationHandle* handle, void* shown, CUmemAllocationHandleType type) {
  FAULT(cuMemImportFromShareableHandle);
  stand_in::Handle made{};
  std::memcpy(&made, shown, sizeof(made));
  *handle = static_cast<int>(type) == kFabric ? Machine::instance().open_physical(made) : 0;
  return code(unless(*handle == 0, kInvalidValue));
}
ANSWERS(CUresult, cuMemcpy, (CUdeviceptr target, CUdeviceptr source, std::size_t bytes),
        copy(pointer(target), pointer(source), bytes))
ANSWERS(CUresult, cuMemcpyAsync, (CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream),
        queue_copy(pointer(target), pointer(source), bytes, stream_of(stream)))
ANSWERS(CUresult, cuMemcpyPeerAsync,
        (CUdeviceptr target, CUcontext to, CUdeviceptr source, CUcontext from, std::size_t bytes, CUstream stream),
        to == nullptr || from == nullptr ? int{kInvalidContext}
                                         : queue_copy(pointer(target), pointer(source), bytes, stream_of(stream)))
ANSWERS(CUresult, cuStreamCreate, (CUstream * stream, unsigned),
        current < 0 ? int{kInvalidContext} : create_stream(stream, current))
ANSWERS(CUresult, cuCtxGetStreamPriorityRange, (int* least, int* greatest), stream_priorities(least, greatest))
ANSWERS(CUresult, cuStreamCreateWithPriority, (CUstream * stream, unsigned, int priority),
        current < 0 ? int{kInvalidContext} : create_stream(stream, current, priority))
ANSWERS(CUresult, cuStreamDestroy_v2, (CUstream stream), destroy_stream(stream_of(stream)))
STAND_IN(cuStreamSynchronize)(CUstream stream) {
  FAULT(cuStreamSynchronize);
  if (stream != nullptr) stream_of(stream)->synchronize();
  return code(Machine::instance().lost());
}
ANSWERS(CUresult, cuStreamQuery, (CUstream stream), query(stream_of(stream)))
ANSWERS(CUresult, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode), begin_capture(stream_of(stream)))
ANSWERS(CUresult, cuStreamEndCapture, (CUstream stream, CUgraph* graph), end_capture(stream_of(stream), graph))
ANSWERS(CUresult, cuGraphInstantiateWithFlags, (CUgraphExec * ready, CUgraph graph, unsigned long long),
        instantiate(ready, captured_of(graph)))
ANSWERS(CUresult, cuGraphLaunch, (CUgraphExec graph, CUstream stream),
        launch_graph(captured_of(graph), stream_of(stream)))
ANSWERS(CUresult, cuGraphExecDestroy, (CUgraphExec graph), destroy(captured_of(graph), true))
ANSWERS(CUresult, cuGraphDestroy, (CUgraph graph), destroy(captured_of(graph), false))
ANSWERS(CUresult, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned),
        wait(stream_of(stream), event_of(event)))
ANSWERS(CUresult, cuEventCreate, (CUevent * event, unsigned), current < 0 ? int{kInvalidContext} : create_event(event))
ANSWERS(CUresult, cuEventDestroy_v2, (CUevent event), destroy_event(event_of(event)))
ANSWERS(CUresult, cuEventRecord, (CUevent event, CUstream stream), record(event_of(event), stream_of(stream)))
STAND_IN(cuEventSynchronize)(CUevent event) {
  FAULT(cuEventSynchronize);
  const bool known = Machine::instance().synchronize_event(event_of(event));
  return code(known ? Machine::instance().lost() : kInvalidHandle);
}
ANSWERS(CUresult, cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent stop),
        elapsed(milliseconds, event_of(start), event_of(stop)))
ANSWERS(CUresult, cuModuleLoadData, (CUmodule * module, const void* image),
        load_module(module, image, "sm_" + std::to_string(Machine::instance().settings().architecture)))
ANSWERS(CUresult, cuModuleUnload, (CUmodule module), unload_module(module))
ANSWERS(CUresult, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name),
        find_kernel(function, module, name))
STAND_IN(cuFuncGetAttribute)(int* value, CUfunction_attribute, CUfunction) {
  FAULT(cuFuncGetAttribute);
  *value = 32;
  return code(0);
}
STAND_IN(cuFuncSetAttribute)(CUfunction, CUfunction_attribute, int) {
  FAULT(cuFuncSetAttribute);
  return code(0);
}
ANSWERS(CUresult, cuLaunchKernel,
        (CUfunction function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
         unsigned shared_bytes, CUstream stream, void** arguments, void**),
        launch(function, blocks, threads, shared_bytes, stream_of(stream), arguments, current, kInvalidContext))
