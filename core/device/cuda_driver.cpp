#include "device/cuda_driver.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "errors.h"

namespace linkgauge {
namespace {

using cuda::DevicePointer;

DevicePointer address(const void* memory) { return reinterpret_cast<DevicePointer>(memory); }
void* pointer(DevicePointer memory) { return reinterpret_cast<void*>(memory); }

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string visible_devices() {
  const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
  return shown == nullptr ? std::string() : std::string("CUDA_VISIBLE_DEVICES=\"") + shown + "\"";
}

// Why there is nothing to use, from what cuInit or cuDeviceGetCount said.
std::string reason_of(cuda::Result result, const std::string& code_name) {
  const std::string said = " (" + code_name + ", " + std::to_string(result) + ")";
  if (result == cuda::kNoDevice || result == cuda::kSuccess) {
    const std::string hidden = visible_devices();
    return hidden.empty() ? "the CUDA driver finds no device" + said
                          : "no CUDA device is visible: " + hidden + " hides them, or there is none" + said;
  }
  if (result == cuda::kStubLibrary) return "libcuda.so.1 is the toolkit's stub, not a driver" + said;
  if (result == cuda::kSystemDriverMismatch)
    return "libcuda.so.1 and the kernel's NVIDIA module are of different versions; reload the module or restart" + said;
  const bool denied = access("/dev/nvidiactl", F_OK) == 0 && access("/dev/nvidiactl", R_OK | W_OK) != 0;
  if (denied || result == cuda::kNotPermitted)
    return "no permission to use the GPUs: this user may not read and write /dev/nvidiactl" + said;
  return "the CUDA driver does not start" + said;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string uuid_text(const cuda::Uuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

CudaDriver::CudaDriver() {
  const SharedLibrary library({"libcuda.so.1"});
  if (!library) throw Unsupported("no CUDA driver: " + library.why());
  const std::string missing = bind_symbols(library, api_.entries());
  if (!missing.empty())
    throw Unsupported("the CUDA driver is too old: " + library.path() + " lacks " + missing + "; " +
                      version_text(cuda::kOldestDriver) + " or newer is needed");
  const auto name_of = [&](cuda::Result result) {
    const char* code_name = nullptr;
    return api_.cuGetErrorName(result, &code_name) == cuda::kSuccess && code_name != nullptr ? std::string(code_name)
                                                                                             : std::string("unknown");
  };
  const cuda::Result started = api_.cuInit(0);
  if (started != cuda::kSuccess) throw Unsupported(reason_of(started, name_of(started)));
  check(api_.cuDriverGetVersion(&supported_version_), "cuDriverGetVersion");
  if (supported_version_ < cuda::kOldestDriver)
    throw Unsupported("the CUDA driver is too old: it supports CUDA " + version_text(supported_version_) + ", " +
                      version_text(cuda::kOldestDriver) + " or newer is needed");
  int count = 0;
  const cuda::Result counted = api_.cuDeviceGetCount(&count);
  if (counted != cuda::kSuccess || count == 0) throw Unsupported(reason_of(counted, name_of(counted)));
}

CudaDriver::~CudaDriver() {
  for (const auto& device : devices_) {
    const cuda::Context mine = device->context.load();
    if (mine == nullptr) continue;
    cuda::Context current = nullptr;
    if (api_.cuCtxGetCurrent(&current) == cuda::kSuccess && current == mine) (void)api_.cuCtxSetCurrent(nullptr);
    (void)api_.cuDevicePrimaryCtxRelease_v2(device->identity.native);
  }
}

void CudaDriver::check(cuda::Result result, const char* call, const std::string& detail) const {
  if (result == cuda::kSuccess) return;
  const char* code_name = nullptr;
  const char* meaning = nullptr;
  if (api_.cuGetErrorName(result, &code_name) != cuda::kSuccess || code_name == nullptr) code_name = "unknown error";
  if (api_.cuGetErrorString(result, &meaning) != cuda::kSuccess || meaning == nullptr) meaning = "";
  std::string text = meaning;
  if (!detail.empty()) text += text.empty() ? detail : "; " + detail;
  throw RuntimeCallError(call, code_name, result, current_device(), text);
}

void CudaDriver::check_memory(cuda::Result result, const char* call, std::size_t bytes) const {
  if (result != cuda::kOutOfMemory) {
    check(result, call, std::to_string(bytes) + " bytes were asked for");
    return;
  }
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  std::string seen;
  if (api_.cuMemGetInfo_v2(&free_bytes, &total_bytes) == cuda::kSuccess)
    seen = "; " + std::to_string(free_bytes) + " of " + std::to_string(total_bytes) + " are free there";
  throw MemoryError(std::string(call) + " of " + std::to_string(bytes) +
                    " bytes failed with CUDA_ERROR_OUT_OF_MEMORY (" + std::to_string(result) + ") on device " +
                    std::to_string(current_device()) + seen);
}

int CudaDriver::current_device() const {
  cuda::Context current = nullptr;
  if (api_.cuCtxGetCurrent(&current) != cuda::kSuccess || current == nullptr) return -1;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->context.load(std::memory_order_relaxed) == current) return static_cast<int>(i);
  }
  return -1;
}

cuda::Context CudaDriver::context(int device) const {
  Device& entry = *devices_[static_cast<std::size_t>(device)];
  cuda::Context found = entry.context.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  const std::lock_guard lock(contexts_mutex_);
  found = entry.context.load();
  if (found == nullptr) {
    check(api_.cuDevicePrimaryCtxRetain(&found, entry.identity.native), "cuDevicePrimaryCtxRetain",
          "device " + std::to_string(device));
    entry.context.store(found, std::memory_order_release);
  }
  return found;
}

int CudaDriver::attribute(cuda::Attribute which, cuda::Device device) const {
  int value = 0;
  return api_.cuDeviceGetAttribute(&value, which, device) == cuda::kSuccess ? value : 0;
}

// --- devices -----------------------------------------------------------------------------------------------------

std::string CudaDriver::version() const {
  const std::string driver = nvml_.driver_version();
  return "CUDA " + version_text(supported_version_) + (driver.empty() ? "" : ", driver " + driver);
}

std::vector<GpuIdentity> CudaDriver::enumerate() const {
  int count = 0;
  check(api_.cuDeviceGetCount(&count), "cuDeviceGetCount");
  std::vector<GpuIdentity> found;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cuda::Device native = 0;
    check(api_.cuDeviceGet(&native, ordinal), "cuDeviceGet");
    std::array<char, 32> text{};
    check(api_.cuDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), native), "cuDeviceGetPCIBusId");
    found.push_back({native, lower(text.data())});
  }
  // CUDA's own order puts the fastest first unless CUDA_DEVICE_ORDER says otherwise.
  std::stable_sort(found.begin(), found.end(),
                   [](const GpuIdentity& a, const GpuIdentity& b) { return a.pci_address < b.pci_address; });
  return found;
}

void CudaDriver::select(std::vector<GpuIdentity> devices) {
  devices_.clear();
  for (GpuIdentity& identity : devices) devices_.push_back(std::make_unique<Device>(std::move(identity)));
}

DeviceInfo CudaDriver::describe(int device) const {
  const GpuIdentity& identity = devices_[static_cast<std::size_t>(device)]->identity;
  const cuda::Device own = identity.native;
  DeviceInfo info;
  info.kind = "cuda";
  info.pci_address = identity.pci_address;
  std::array<char, 256> text{};
  check(api_.cuDeviceGetName(text.data(), static_cast<int>(text.size()), own), "cuDeviceGetName");
  info.name = text.data();
  cuda::Uuid uuid{};
  check(api_.cuDeviceGetUuid_v2(&uuid, own), "cuDeviceGetUuid_v2");
  info.uuid = uuid_text(uuid);
  check(api_.cuDeviceTotalMem_v2(&info.memory_bytes, own), "cuDeviceTotalMem_v2");
  const int major = attribute(cuda::kComputeCapabilityMajor, own);
  info.architecture = "sm_" + std::to_string(10 * major + attribute(cuda::kComputeCapabilityMinor, own));
  info.multiprocessors = attribute(cuda::kMultiprocessorCount, own);
  info.last_level_cache_bytes = static_cast<std::size_t>(attribute(cuda::kL2CacheBytes, own));
  const nvml::Facts facts = nvml_.facts(identity.pci_address);
  info.serial = facts.serial;
  info.vbios = facts.vbios;
  const std::array<std::pair<const char*, cuda::Attribute>, 9> told{{
      {"clock_khz", cuda::kClockRateKhz},
      {"memory_clock_khz", cuda::kMemoryClockRateKhz},
      {"memory_bus_bits", cuda::kGlobalMemoryBusWidthBits},
      {"copy_engines", cuda::kAsyncEngineCount},
      {"ecc", cuda::kEccEnabled},
      {"compute_mode", cuda::kComputeMode},
      {"managed_memory_concurrent", cuda::kConcurrentManagedAccess},
      {"pageable_memory_access", cuda::kPageableMemoryAccess},
      {"host_native_atomics", cuda::kHostNativeAtomics},
  }};
  for (const auto& [what, which] : told) info.attributes[what] = std::to_string(attribute(which, own));
  return info;
}

std::uintptr_t CudaDriver::enter(int device) {
  const cuda::Context wanted = context(device);
  cuda::Context previous = nullptr;
  check(api_.cuCtxGetCurrent(&previous), "cuCtxGetCurrent");
  if (previous != wanted) check(api_.cuCtxSetCurrent(wanted), "cuCtxSetCurrent");
  return reinterpret_cast<std::uintptr_t>(previous);
}

void CudaDriver::leave(std::uintptr_t previous) noexcept {
  const auto context_before = reinterpret_cast<cuda::Context>(previous);
  if (context_before != nullptr) (void)api_.cuCtxSetCurrent(context_before);
}

bool CudaDriver::in_use(int device) const {
  return devices_[static_cast<std::size_t>(device)]->context.load(std::memory_order_acquire) != nullptr;
}

bool CudaDriver::can_access_peer(int device, int peer) const {
  int possible = 0;
  check(api_.cuDeviceCanAccessPeer(&possible, native(device), native(peer)), "cuDeviceCanAccessPeer");
  return possible != 0;
}

void CudaDriver::enable_peer_access(int peer) {
  const cuda::Result result = api_.cuCtxEnablePeerAccess(context(peer), 0);
  if (result != cuda::kPeerAccessAlreadyEnabled) check(result, "cuCtxEnablePeerAccess");
}

// --- memory ------------------------------------------------------------------------------------------------------

MemoryInfo CudaDriver::memory() const {
  MemoryInfo info;
  check(api_.cuMemGetInfo_v2(&info.free_bytes, &info.total_bytes), "cuMemGetInfo_v2");
  return info;
}

void* CudaDriver::allocate_device(std::size_t bytes) {
  DevicePointer memory = 0;
  check_memory(api_.cuMemAlloc_v2(&memory, bytes), "cuMemAlloc_v2", bytes);
  return pointer(memory);
}

void CudaDriver::free_device(void* memory) noexcept { (void)api_.cuMemFree_v2(address(memory)); }

void* CudaDriver::allocate_pinned(std::size_t bytes, bool write_combined) {
  void* memory = nullptr;
  const unsigned flags =
      cuda::kHostAllocPortable | cuda::kHostAllocDeviceMap | (write_combined ? cuda::kHostAllocWriteCombined : 0U);
  check_memory(api_.cuMemHostAlloc(&memory, bytes, flags), "cuMemHostAlloc", bytes);
  return memory;
}

void CudaDriver::free_pinned(void* memory) noexcept { (void)api_.cuMemFreeHost(memory); }

void* CudaDriver::allocate_managed(std::size_t bytes) {
  DevicePointer memory = 0;
  check_memory(api_.cuMemAllocManaged(&memory, bytes, cuda::kMemAttachGlobal), "cuMemAllocManaged", bytes);
  return pointer(memory);
}

std::string CudaDriver::why_not_managed(int device, ManagedUse use) const {
  if (attribute(cuda::kManagedMemory, native(device)) == 0) return "this device or its driver has no managed memory";
  if (use == ManagedUse::kDefault) return "";
  if (attribute(cuda::kConcurrentManagedAccess, native(device)) == 0)
    return "managed memory moves as a whole with each kernel here (no concurrent managed access), so there is neither "
           "migration by page nor advice nor prefetch; only managed = default";
  if (use == ManagedUse::kMigrate) return "";
  const bool prefetches = has_locations() || api_.cuMemPrefetchAsync != nullptr;
  const bool advises = has_locations() || api_.cuMemAdvise != nullptr;
  if (!(use == ManagedUse::kPrefetch ? prefetches : advises))
    return std::string("this driver has no ") + (use == ManagedUse::kPrefetch ? "cuMemPrefetchAsync" : "cuMemAdvise");
  return "";
}

// Page by page, or as a whole where there is no concurrent access.
bool CudaDriver::managed_migrates(int /*device*/) const { return true; }

bool CudaDriver::has_locations() const {
  constexpr int kSince = 12020;
  return supported_version_ >= kSince && api_.cuMemPrefetchAsync_v2 != nullptr && api_.cuMemAdvise_v2 != nullptr;
}

void CudaDriver::advise(void* memory, std::size_t bytes, int advice, int device) {
  if (has_locations()) {
    const cuda::Location location =
        device < 0 ? cuda::Location{cuda::kLocationHost, 0} : cuda::Location{cuda::kLocationDevice, native(device)};
    check(api_.cuMemAdvise_v2(address(memory), bytes, advice, location), "cuMemAdvise_v2");
  } else {
    const cuda::Device where = device < 0 ? cuda::kCpuDevice : native(device);
    check(api_.cuMemAdvise(address(memory), bytes, advice, where), "cuMemAdvise");
  }
}

void CudaDriver::advise_managed(void* memory, std::size_t bytes, int device, ManagedUse use) {
  switch (use) {
    case ManagedUse::kDefault:
    case ManagedUse::kMigrate:
    case ManagedUse::kPrefetch:
      break;
    case ManagedUse::kZeroCopy:  // what the driver documents for pages that are mapped, never moved
      advise(memory, bytes, cuda::kAdvisePreferredLocation, -1);
      advise(memory, bytes, cuda::kAdviseAccessedBy, device);
      break;
    case ManagedUse::kPreferredDevice:
      advise(memory, bytes, cuda::kAdvisePreferredLocation, device);
      break;
    case ManagedUse::kPreferredHost:
      advise(memory, bytes, cuda::kAdvisePreferredLocation, -1);
      break;
    case ManagedUse::kAccessedBy:
      advise(memory, bytes, cuda::kAdviseAccessedBy, device);
      break;
    case ManagedUse::kReadMostly:
      advise(memory, bytes, cuda::kAdviseReadMostly, device);
      break;
  }
}

void CudaDriver::prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) {
  if (has_locations()) {
    const cuda::Location location = to_device < 0 ? cuda::Location{cuda::kLocationHost, 0}
                                                  : cuda::Location{cuda::kLocationDevice, native(to_device)};
    check(api_.cuMemPrefetchAsync_v2(address(memory), bytes, location, 0, stream), "cuMemPrefetchAsync_v2");
  } else {
    const cuda::Device where = to_device < 0 ? cuda::kCpuDevice : native(to_device);
    check(api_.cuMemPrefetchAsync(address(memory), bytes, where, stream), "cuMemPrefetchAsync");
  }
}

void CudaDriver::register_host(void* memory, std::size_t bytes) {
  check_memory(api_.cuMemHostRegister_v2(memory, bytes, cuda::kHostRegisterPortable | cuda::kHostRegisterDeviceMap),
               "cuMemHostRegister_v2", bytes);
  DevicePointer seen = 0;
  const cuda::Result result = api_.cuMemHostGetDevicePointer_v2(&seen, memory, 0);
  if (result == cuda::kSuccess && seen == address(memory)) return;
  (void)api_.cuMemHostUnregister(memory);
  check(result, "cuMemHostGetDevicePointer_v2");
  throw Unsupported("registered host memory has another address on this device, so it cannot be placed by NUMA node");
}

void CudaDriver::unregister_host(void* memory) noexcept { (void)api_.cuMemHostUnregister(memory); }

GpuDriver::AddressRange CudaDriver::address_range(const void* memory) const {
  DevicePointer base = 0;
  AddressRange range;
  check(api_.cuMemGetAddressRange_v2(&base, &range.bytes, address(memory)), "cuMemGetAddressRange_v2");
  range.base = pointer(base);
  return range;
}

GpuDriver::IpcBytes CudaDriver::share(void* base) const {
  cuda::IpcHandle handle{};
  check(api_.cuIpcGetMemHandle(&handle, address(base)), "cuIpcGetMemHandle");
  return {handle.reserved, sizeof(handle.reserved)};
}

void* CudaDriver::open_shared(const IpcBytes& bytes) {
  cuda::IpcHandle handle{};
  if (bytes.size() != sizeof(handle)) throw CallerError("open_shared: not a handle of the CUDA runtime");
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  DevicePointer base = 0;
  check(api_.cuIpcOpenMemHandle_v2(&base, handle, cuda::kIpcLazyEnablePeerAccess), "cuIpcOpenMemHandle_v2",
        "the memory belongs to another process");
  return pointer(base);
}

void CudaDriver::close_shared(void* base) noexcept { (void)api_.cuIpcCloseMemHandle(address(base)); }

// --- queues ------------------------------------------------------------------------------------------------------

StreamHandle CudaDriver::create_stream() {
  cuda::Stream stream = nullptr;
  check(api_.cuStreamCreate(&stream, cuda::kStreamNonBlocking), "cuStreamCreate");
  return stream;
}

void CudaDriver::destroy_stream(StreamHandle stream) noexcept { (void)api_.cuStreamDestroy_v2(stream); }

void CudaDriver::synchronize(StreamHandle stream) { check(api_.cuStreamSynchronize(stream), "cuStreamSynchronize"); }

bool CudaDriver::done(StreamHandle stream) {
  const cuda::Result result = api_.cuStreamQuery(stream);
  if (result == cuda::kNotReady) return false;
  check(result, "cuStreamQuery");
  return true;
}

std::string CudaDriver::lacks_for_graphs() const {
  if (api_.cuStreamBeginCapture_v2 == nullptr) return "cuStreamBeginCapture_v2";
  if (api_.cuStreamEndCapture == nullptr) return "cuStreamEndCapture";
  if (api_.cuGraphInstantiateWithFlags == nullptr) return "cuGraphInstantiateWithFlags";
  if (api_.cuGraphLaunch == nullptr) return "cuGraphLaunch";
  if (api_.cuGraphExecDestroy == nullptr) return "cuGraphExecDestroy";
  return api_.cuGraphDestroy == nullptr ? "cuGraphDestroy" : "";
}

void CudaDriver::begin_capture(StreamHandle stream) {
  check(api_.cuStreamBeginCapture_v2(stream, cuda::kCaptureThreadLocal), "cuStreamBeginCapture_v2");
}

GraphHandle CudaDriver::end_capture(StreamHandle stream) {
  cuda::Graph graph = nullptr;
  check(api_.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  cuda::GraphExec ready = nullptr;
  const cuda::Result result = api_.cuGraphInstantiateWithFlags(&ready, graph, 0);
  (void)api_.cuGraphDestroy(graph);
  check(result, "cuGraphInstantiateWithFlags");
  return ready;
}

void CudaDriver::launch_graph(GraphHandle graph, StreamHandle stream) {
  check(api_.cuGraphLaunch(graph, stream), "cuGraphLaunch");
}

void CudaDriver::destroy_graph(GraphHandle graph) noexcept { (void)api_.cuGraphExecDestroy(graph); }

EventHandle CudaDriver::create_event() {
  cuda::Event event = nullptr;
  check(api_.cuEventCreate(&event, cuda::kEventDefault), "cuEventCreate");
  return event;
}

void CudaDriver::destroy_event(EventHandle event) noexcept { (void)api_.cuEventDestroy_v2(event); }

void CudaDriver::record(EventHandle event, StreamHandle stream) {
  check(api_.cuEventRecord(event, stream), "cuEventRecord");
}

void CudaDriver::wait(StreamHandle stream, EventHandle event) {
  check(api_.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

void CudaDriver::synchronize_event(EventHandle event) { check(api_.cuEventSynchronize(event), "cuEventSynchronize"); }

float CudaDriver::elapsed_ms(EventHandle start, EventHandle stop) {
  float milliseconds = 0;
  check(api_.cuEventElapsedTime(&milliseconds, start, stop), "cuEventElapsedTime");
  return milliseconds;
}

void CudaDriver::copy(void* target, const void* source, std::size_t bytes) {
  check(api_.cuMemcpy(address(target), address(source), bytes), "cuMemcpy");
  // Between devices' memory cuMemcpy itself returns before the copy is done.
  check(api_.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
}

void CudaDriver::copy_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) {
  check(api_.cuMemcpyAsync(address(target), address(source), bytes, stream), "cuMemcpyAsync");
}

void CudaDriver::copy_peer_async(void* target, int target_device, const void* source, int source_device,
                                 std::size_t bytes, StreamHandle stream) {
  check(api_.cuMemcpyPeerAsync(address(target), context(target_device), address(source), context(source_device), bytes,
                               stream),
        "cuMemcpyPeerAsync");
}

// --- kernels -----------------------------------------------------------------------------------------------------

void* CudaDriver::load_module(const std::string& image) {
  cuda::Module module = nullptr;
  check(api_.cuModuleLoadData(&module, image.data()), "cuModuleLoadData");
  return module;
}

void CudaDriver::unload_module(void* module) noexcept { (void)api_.cuModuleUnload(module); }

KernelHandle CudaDriver::find_kernel(void* module, const char* kernel_name, bool dynamic_shared) {
  cuda::Function function = nullptr;
  check(api_.cuModuleGetFunction(&function, module, kernel_name), "cuModuleGetFunction", kernel_name);
  // Lazy loading would load the code at the first launch, and that waits for running kernels.
  int registers = 0;
  if (api_.cuFuncLoad != nullptr) {
    check(api_.cuFuncLoad(function), "cuFuncLoad", kernel_name);
  } else {
    check(api_.cuFuncGetAttribute(&registers, cuda::kFuncRegisters, function), "cuFuncGetAttribute", kernel_name);
  }
  if (dynamic_shared) {
    const int bytes = attribute(cuda::kMaxSharedMemoryOptinBytes, native(current_device()));
    check(api_.cuFuncSetAttribute(function, cuda::kFuncMaxDynamicSharedBytes, bytes), "cuFuncSetAttribute",
          kernel_name);
  }
  return function;
}

void CudaDriver::launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) {
  check(api_.cuLaunchKernel(kernel, shape.blocks, 1, 1, shape.threads, 1, 1, shape.shared_bytes, stream, arguments,
                            nullptr),
        "cuLaunchKernel");
}

}  // namespace linkgauge
