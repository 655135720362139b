#include "device/hip_driver.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "device/hip_architecture.h"
#include "errors.h"

namespace linkgauge {
namespace {

// hip: 50221153 is 5.2.21153, which ROCm 5.2 brings.
std::string version_text(int version) {
  return std::to_string(version / 10'000'000) + "." + std::to_string(version / 100'000 % 100) + "." +
         std::to_string(version % 100'000);
}

std::string hidden_by() {
  std::string text;
  for (const char* variable : {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
    if (const char* value = std::getenv(variable); value != nullptr)
      text += (text.empty() ? "" : ", ") + std::string(variable) + "=\"" + value + "\"";
  }
  return text;
}

// Why there is nothing to use, from what hipInit or hipGetDeviceCount said.
std::string reason_of(hip::Result result, const char* code_name) {
  const std::string said = std::string(" (") + code_name + ", " + std::to_string(result) + ")";
  if (access("/dev/kfd", F_OK) == 0 && access("/dev/kfd", R_OK | W_OK) != 0)
    return "no permission to use the GPUs: this user may not read and write /dev/kfd (group render)" + said;
  if (result == hip::kInsufficientDriver) return "the kernel's amdgpu driver is too old for this HIP runtime" + said;
  const std::string hidden = hidden_by();
  if (!hidden.empty()) return "no HIP device is visible: " + hidden + " hides them, or there is none" + said;
  return "the HIP runtime finds no device" + said;
}

// The runtime writes the 16 characters of the unique id, or 16 raw bytes.
std::string uuid_text(const hip::Uuid& uuid) {
  const bool characters = std::all_of(std::begin(uuid.bytes), std::end(uuid.bytes),
                                      [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
  std::string text = "GPU-";
  if (characters) return text.append(uuid.bytes, sizeof(uuid.bytes));
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char c : uuid.bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

HipDriver::HipDriver() {
  const SharedLibrary library(hip::library_names());
  if (!library) throw Unsupported("no HIP runtime: " + library.why());
  library_path_ = library.path();
  const std::string missing = bind_symbols(library, api_.entries());
  if (!missing.empty())
    throw Unsupported("the HIP runtime is too old: " + library.path() + " lacks " + missing +
                      "; ROCm 5.2 or newer is needed");
  const hip::Result started = api_.hipInit(0);
  if (started != hip::kSuccess) throw Unsupported(reason_of(started, api_.hipGetErrorName(started)));
  int count = 0;
  const hip::Result counted = api_.hipGetDeviceCount(&count);
  if (counted != hip::kSuccess || count == 0) throw Unsupported(reason_of(counted, api_.hipGetErrorName(counted)));
}

void HipDriver::check(hip::Result result, const char* call, const std::string& detail) const {
  if (result == hip::kSuccess) return;
  std::string text = api_.hipGetErrorString(result);
  if (!detail.empty()) text += "; " + detail;
  throw RuntimeCallError(call, api_.hipGetErrorName(result), result, current_device(), text);
}

void HipDriver::check_memory(hip::Result result, const char* call, std::size_t bytes) const {
  if (result != hip::kOutOfMemory) {
    check(result, call, std::to_string(bytes) + " bytes were asked for");
    return;
  }
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  std::string seen;
  if (api_.hipMemGetInfo(&free_bytes, &total_bytes) == hip::kSuccess)
    seen = "; " + std::to_string(free_bytes) + " of " + std::to_string(total_bytes) + " are free there";
  throw MemoryError(std::string(call) + " of " + std::to_string(bytes) + " bytes failed with " +
                    api_.hipGetErrorName(result) + " (" + std::to_string(result) + ") on device " +
                    std::to_string(current_device()) + seen);
}

int HipDriver::current_device() const {
  int current = -1;
  if (api_.hipGetDevice(&current) != hip::kSuccess) return -1;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->identity.native == current) return static_cast<int>(i);
  }
  return -1;
}

int HipDriver::attribute(hip::Attribute which, int native_device) const {
  int value = 0;
  return api_.hipDeviceGetAttribute(&value, which, native_device) == hip::kSuccess ? value : 0;
}

// --- devices -----------------------------------------------------------------------------------------------------

std::string HipDriver::version() const {
  int runtime = 0;
  int driver = 0;
  check(api_.hipRuntimeGetVersion(&runtime), "hipRuntimeGetVersion");
  check(api_.hipDriverGetVersion(&driver), "hipDriverGetVersion");
  return "HIP " + version_text(runtime) + (driver != runtime ? ", driver " + version_text(driver) : std::string());
}

std::vector<GpuIdentity> HipDriver::enumerate() const {
  int count = 0;
  check(api_.hipGetDeviceCount(&count), "hipGetDeviceCount");
  std::vector<GpuIdentity> found;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    std::array<char, 64> text{};
    check(api_.hipDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), ordinal), "hipDeviceGetPCIBusId");
    found.push_back({ordinal, lower(text.data())});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const GpuIdentity& a, const GpuIdentity& b) { return a.pci_address < b.pci_address; });
  return found;
}

void HipDriver::select(std::vector<GpuIdentity> devices) {
  devices_.clear();
  for (GpuIdentity& identity : devices) devices_.push_back(std::make_unique<Device>(std::move(identity)));
}

DeviceInfo HipDriver::describe(int device) const {
  const GpuIdentity& identity = devices_[static_cast<std::size_t>(device)]->identity;
  const int own = identity.native;
  DeviceInfo info;
  info.kind = "hip";
  info.pci_address = identity.pci_address;
  std::array<char, 256> text{};
  check(api_.hipDeviceGetName(text.data(), static_cast<int>(text.size()), own), "hipDeviceGetName");
  info.name = text.data();
  hip::Uuid uuid{};
  if (api_.hipDeviceGetUuid != nullptr) {
    check(api_.hipDeviceGetUuid(&uuid, own), "hipDeviceGetUuid");
    info.uuid = uuid_text(uuid);
  } else {
    info.uuid = "PCI-" + identity.pci_address;  // HIP before 5.1 has no other name that lasts
  }
  check(api_.hipDeviceTotalMem(&info.memory_bytes, own), "hipDeviceTotalMem");
  info.architecture = architecture(own, identity.pci_address);
  info.multiprocessors = attribute(hip::kMultiprocessorCount, own);
  info.last_level_cache_bytes = static_cast<std::size_t>(attribute(hip::kL2CacheBytes, own));
  const std::array<std::pair<const char*, hip::Attribute>, 8> told{{
      {"clock_khz", hip::kClockRateKhz},
      {"memory_clock_khz", hip::kMemoryClockRateKhz},
      {"memory_bus_bits", hip::kMemoryBusWidthBits},
      {"ecc", hip::kEccEnabled},
      {"managed_memory_concurrent", hip::kConcurrentManagedAccess},
      {"managed_memory_direct_from_host", hip::kDirectManagedFromHost},
      {"pageable_memory_access", hip::kPageableMemoryAccess},
      {"large_bar", hip::kIsLargeBar},
  }};
  for (const auto& [what, which] : told) info.attributes[what] = std::to_string(attribute(which, own));
  return info;
}

std::string HipDriver::architecture(int native_device, const std::string& pci_address) const {
  std::string found = hip::architecture_of(pci_address);
  if (!found.empty()) return found;
  constexpr std::size_t kPropertiesBytes = 16384;  // any version's hipDeviceProp_t is well below
  std::vector<char> properties(kPropertiesBytes);
  const auto ask =
      api_.hipGetDevicePropertiesR0600 != nullptr ? api_.hipGetDevicePropertiesR0600 : api_.hipGetDeviceProperties;
  if (ask != nullptr && ask(properties.data(), native_device) == hip::kSuccess)
    found = hip::architecture_in(properties.data(), properties.size());
  return found;
}

std::uintptr_t HipDriver::enter(int device) {
  int previous = 0;
  check(api_.hipGetDevice(&previous), "hipGetDevice");
  if (previous != native(device)) check(api_.hipSetDevice(native(device)), "hipSetDevice");
  devices_[static_cast<std::size_t>(device)]->used.store(true, std::memory_order_release);
  return static_cast<std::uintptr_t>(previous);
}

void HipDriver::leave(std::uintptr_t previous) noexcept { (void)api_.hipSetDevice(static_cast<int>(previous)); }

bool HipDriver::in_use(int device) const {
  return devices_[static_cast<std::size_t>(device)]->used.load(std::memory_order_acquire);
}

bool HipDriver::can_access_peer(int device, int peer) const {
  int possible = 0;
  check(api_.hipDeviceCanAccessPeer(&possible, native(device), native(peer)), "hipDeviceCanAccessPeer");
  return possible != 0;
}

void HipDriver::enable_peer_access(int peer) {
  const hip::Result result = api_.hipDeviceEnablePeerAccess(native(peer), 0);
  if (result != hip::kPeerAccessAlreadyEnabled) check(result, "hipDeviceEnablePeerAccess");
}

// --- memory ------------------------------------------------------------------------------------------------------

MemoryInfo HipDriver::memory() const {
  MemoryInfo info;
  check(api_.hipMemGetInfo(&info.free_bytes, &info.total_bytes), "hipMemGetInfo");
  return info;
}

void* HipDriver::allocate_device(std::size_t bytes) {
  void* memory = nullptr;
  check_memory(api_.hipMalloc(&memory, bytes), "hipMalloc", bytes);
  return memory;
}

void HipDriver::free_device(void* memory) noexcept { (void)api_.hipFree(memory); }

void* HipDriver::allocate_pinned(std::size_t bytes, bool write_combined) {
  void* memory = nullptr;
  // Coherent unless asked otherwise, as HIP itself does; non-coherent is what write-combined asks for here.
  const unsigned flags =
      hip::kHostMallocPortable | hip::kHostMallocMapped | (write_combined ? hip::kHostMallocNonCoherent : 0U);
  check_memory(api_.hipHostMalloc(&memory, bytes, flags), "hipHostMalloc", bytes);
  return memory;
}

void HipDriver::free_pinned(void* memory) noexcept { (void)api_.hipHostFree(memory); }

void* HipDriver::allocate_managed(std::size_t bytes) {
  if (attribute(hip::kManagedMemory, native(std::max(0, current_device()))) == 0)
    throw Unsupported("this device or its driver has no managed memory (HMM)");
  void* memory = nullptr;
  check_memory(api_.hipMallocManaged(&memory, bytes, hip::kMemAttachGlobal), "hipMallocManaged", bytes);
  return memory;
}

std::string HipDriver::why_not_managed(int device, ManagedUse use) const {
  if (attribute(hip::kManagedMemory, native(device)) == 0)
    return "this device or its driver has no managed memory (HMM)";
  const bool retries = managed_migrates(device);
  switch (use) {
    case ManagedUse::kDefault:
      return "";
    case ManagedUse::kMigrate:
      if (!retries) return "pages migrate only where a GPU's page faults are retried: the launch needs HSA_XNACK=1";
      return attribute(hip::kPageableMemoryAccess, native(device)) != 0
                 ? ""
                 : "HSA_XNACK=1 is set, but this device or its driver retries no page faults";
    case ManagedUse::kZeroCopy:
      return retries ? "pages migrate with HSA_XNACK=1: zero copy needs HSA_XNACK=0" : "";
    default:
      break;
  }
  if (attribute(hip::kConcurrentManagedAccess, native(device)) == 0)
    return "this device or its driver has no concurrent managed access, so there is neither advice nor prefetch";
  if (use == ManagedUse::kPrefetch) return api_.hipMemPrefetchAsync != nullptr ? "" : "there is no hipMemPrefetchAsync";
  return api_.hipMemAdvise != nullptr ? "" : "there is no hipMemAdvise";
}

// The runtime reads the variable when it starts; without it a fault ends the kernel, and memory is mapped instead.
bool HipDriver::managed_migrates(int /*device*/) const {
  const char* retry = std::getenv("HSA_XNACK");
  return retry != nullptr && std::string(retry) == "1";
}

void HipDriver::advise_managed(void* memory, std::size_t bytes, int device, ManagedUse use) {
  const auto advise = [&](int advice, int where) {
    check(api_.hipMemAdvise(memory, bytes, advice, where), "hipMemAdvise");
  };
  switch (use) {
    case ManagedUse::kDefault:
    case ManagedUse::kMigrate:
    case ManagedUse::kZeroCopy:
    case ManagedUse::kPrefetch:
      break;
    case ManagedUse::kPreferredDevice:
      advise(hip::kAdvisePreferredLocation, native(device));
      break;
    case ManagedUse::kPreferredHost:
      advise(hip::kAdvisePreferredLocation, hip::kCpuDevice);
      break;
    case ManagedUse::kAccessedBy:
      advise(hip::kAdviseAccessedBy, native(device));
      break;
    case ManagedUse::kReadMostly:
      advise(hip::kAdviseReadMostly, native(device));
      break;
  }
}

void HipDriver::prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) {
  check(api_.hipMemPrefetchAsync(memory, bytes, to_device < 0 ? hip::kCpuDevice : native(to_device), stream),
        "hipMemPrefetchAsync");
}

void HipDriver::register_host(void* memory, std::size_t bytes) {
  check_memory(api_.hipHostRegister(memory, bytes, hip::kHostRegisterPortable | hip::kHostRegisterMapped),
               "hipHostRegister", bytes);
  void* seen = nullptr;
  const hip::Result result = api_.hipHostGetDevicePointer(&seen, memory, 0);
  if (result == hip::kSuccess && seen == memory) return;
  (void)api_.hipHostUnregister(memory);
  check(result, "hipHostGetDevicePointer");
  throw Unsupported("registered host memory has another address on this device, so it cannot be placed by NUMA node");
}

void HipDriver::unregister_host(void* memory) noexcept { (void)api_.hipHostUnregister(memory); }

GpuDriver::AddressRange HipDriver::address_range(const void* memory) const {
  AddressRange range;
  check(api_.hipMemGetAddressRange(&range.base, &range.bytes, const_cast<void*>(memory)), "hipMemGetAddressRange");
  return range;
}

GpuDriver::IpcBytes HipDriver::share(void* base) const {
  hip::IpcHandle handle{};
  check(api_.hipIpcGetMemHandle(&handle, base), "hipIpcGetMemHandle");
  return {handle.reserved, sizeof(handle.reserved)};
}

void* HipDriver::open_shared(const IpcBytes& bytes) {
  hip::IpcHandle handle{};
  if (bytes.size() != sizeof(handle)) throw CallerError("open_shared: not a handle of the HIP runtime");
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  void* base = nullptr;
  // hipIpcMemLazyEnablePeerAccess is 1 since ROCm 5.3 and was 0 before, each taking only its own.
  hip::Result result = api_.hipIpcOpenMemHandle(&base, handle, 1);
  if (result == hip::kInvalidValue) result = api_.hipIpcOpenMemHandle(&base, handle, 0);
  check(result, "hipIpcOpenMemHandle", "the memory belongs to another process");
  return base;
}

void HipDriver::close_shared(void* base) noexcept { (void)api_.hipIpcCloseMemHandle(base); }

// --- queues ------------------------------------------------------------------------------------------------------

StreamHandle HipDriver::create_stream() {
  hip::Stream stream = nullptr;
  check(api_.hipStreamCreateWithFlags(&stream, hip::kStreamNonBlocking), "hipStreamCreateWithFlags");
  return stream;
}

void HipDriver::destroy_stream(StreamHandle stream) noexcept { (void)api_.hipStreamDestroy(stream); }

void HipDriver::synchronize(StreamHandle stream) { check(api_.hipStreamSynchronize(stream), "hipStreamSynchronize"); }

bool HipDriver::done(StreamHandle stream) {
  const hip::Result result = api_.hipStreamQuery(stream);
  if (result == hip::kNotReady) return false;
  check(result, "hipStreamQuery");
  return true;
}

std::string HipDriver::lacks_for_graphs() const {
  if (api_.hipStreamBeginCapture == nullptr) return "hipStreamBeginCapture";
  if (api_.hipStreamEndCapture == nullptr) return "hipStreamEndCapture";
  if (api_.hipGraphInstantiateWithFlags == nullptr) return "hipGraphInstantiateWithFlags";
  if (api_.hipGraphLaunch == nullptr) return "hipGraphLaunch";
  if (api_.hipGraphExecDestroy == nullptr) return "hipGraphExecDestroy";
  return api_.hipGraphDestroy == nullptr ? "hipGraphDestroy" : "";
}

void HipDriver::begin_capture(StreamHandle stream) {
  check(api_.hipStreamBeginCapture(stream, hip::kCaptureThreadLocal), "hipStreamBeginCapture");
}

GraphHandle HipDriver::end_capture(StreamHandle stream) {
  hip::Graph graph = nullptr;
  check(api_.hipStreamEndCapture(stream, &graph), "hipStreamEndCapture");
  hip::GraphExec ready = nullptr;
  const hip::Result result = api_.hipGraphInstantiateWithFlags(&ready, graph, 0);
  (void)api_.hipGraphDestroy(graph);
  check(result, "hipGraphInstantiateWithFlags");
  return ready;
}

void HipDriver::launch_graph(GraphHandle graph, StreamHandle stream) {
  check(api_.hipGraphLaunch(graph, stream), "hipGraphLaunch");
}

void HipDriver::destroy_graph(GraphHandle graph) noexcept { (void)api_.hipGraphExecDestroy(graph); }

EventHandle HipDriver::create_event() {
  hip::Event event = nullptr;
  check(api_.hipEventCreateWithFlags(&event, hip::kEventDefault), "hipEventCreateWithFlags");
  return event;
}

void HipDriver::destroy_event(EventHandle event) noexcept { (void)api_.hipEventDestroy(event); }

void HipDriver::record(EventHandle event, StreamHandle stream) {
  check(api_.hipEventRecord(event, stream), "hipEventRecord");
}

void HipDriver::wait(StreamHandle stream, EventHandle event) {
  check(api_.hipStreamWaitEvent(stream, event, 0), "hipStreamWaitEvent");
}

void HipDriver::synchronize_event(EventHandle event) { check(api_.hipEventSynchronize(event), "hipEventSynchronize"); }

float HipDriver::elapsed_ms(EventHandle start, EventHandle stop) {
  float milliseconds = 0;
  check(api_.hipEventElapsedTime(&milliseconds, start, stop), "hipEventElapsedTime");
  return milliseconds;
}

void HipDriver::copy(void* target, const void* source, std::size_t bytes) {
  check(api_.hipMemcpy(target, source, bytes, hip::kCopyDefault), "hipMemcpy");
  // Between devices' memory hipMemcpy itself may return before the copy is done.
  check(api_.hipStreamSynchronize(nullptr), "hipStreamSynchronize");
}

void HipDriver::copy_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) {
  check(api_.hipMemcpyAsync(target, source, bytes, hip::kCopyDefault, stream), "hipMemcpyAsync");
}

void HipDriver::copy_peer_async(void* target, int target_device, const void* source, int source_device,
                                std::size_t bytes, StreamHandle stream) {
  check(api_.hipMemcpyPeerAsync(target, native(target_device), source, native(source_device), bytes, stream),
        "hipMemcpyPeerAsync");
}

// --- kernels -----------------------------------------------------------------------------------------------------

void* HipDriver::load_module(const std::string& image) {
  hip::Module module = nullptr;
  check(api_.hipModuleLoadData(&module, image.data()), "hipModuleLoadData");
  return module;
}

void HipDriver::unload_module(void* module) noexcept { (void)api_.hipModuleUnload(module); }

KernelHandle HipDriver::find_kernel(void* module, const char* kernel_name, bool /*dynamic_shared*/) {
  hip::Function function = nullptr;
  check(api_.hipModuleGetFunction(&function, module, kernel_name), "hipModuleGetFunction", kernel_name);
  return function;
}

void HipDriver::launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) {
  check(api_.hipModuleLaunchKernel(kernel, shape.blocks, 1, 1, shape.threads, 1, 1, shape.shared_bytes, stream,
                                   arguments, nullptr),
        "hipModuleLaunchKernel");
}

}  // namespace linkgauge
