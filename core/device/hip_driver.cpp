#include "device/hip_driver.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "device/hip_architecture.h"
#include "device/hiprtc_compiler.h"
#include "device/runtimes.h"

namespace linkgauge {
namespace {

// hip: 50221153 is 5.2.21153, which ROCm 5.2 brings.
std::string hip_version_text(int version) {
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

}  // namespace

HipRuntime::HipRuntime(const RuntimeRequest& request)
    : GpuCalls([this] { return open_hiprtc(library_path_); }, request) {
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
  choose_devices(request, "HIP_VISIBLE_DEVICES");
}

int HipRuntime::current_device() const {
  int current = -1;
  if (api_.hipGetDevice(&current) != hip::kSuccess) return -1;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->identity.native == current) return static_cast<int>(i);
  }
  return -1;
}

// --- devices -----------------------------------------------------------------------------------------------------

std::string HipRuntime::version() const {
  int runtime = 0;
  int driver = 0;
  run(api_.hipRuntimeGetVersion, &runtime);
  run(api_.hipDriverGetVersion, &driver);
  return "HIP " + hip_version_text(runtime) +
         (driver != runtime ? ", driver " + hip_version_text(driver) : std::string());
}

DeviceInfo HipRuntime::describe_own(int device) const {
  const int own = native(device);
  DeviceInfo info = facts_of(device);
  hip::Uuid uuid{};
  if (api_.hipDeviceGetUuid != nullptr) {
    run(api_.hipDeviceGetUuid, &uuid, own);
    info.uuid = uuid_text(uuid);
  } else {
    info.uuid = "PCI-" + info.pci_address;  // HIP before 5.1 has no other name that lasts
  }
  info.architecture = architecture(own, info.pci_address);
  return info;
}

std::string HipRuntime::architecture(int native_device, const std::string& pci_address) const {
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

std::uintptr_t HipRuntime::enter(int device) const {
  int previous = 0;
  run(api_.hipGetDevice, &previous);
  if (previous != native(device)) run(api_.hipSetDevice, native(device));
  entry(device).state.store(true, std::memory_order_release);
  return static_cast<std::uintptr_t>(previous);
}

void HipRuntime::leave(std::uintptr_t previous) const noexcept { (void)api_.hipSetDevice(static_cast<int>(previous)); }

void HipRuntime::enable_peer_access(int peer) {
  const hip::Result result = api_.hipDeviceEnablePeerAccess(native(peer), 0);
  if (result != hip::kPeerAccessAlreadyEnabled) check(result, "hipDeviceEnablePeerAccess");
}

// --- memory ------------------------------------------------------------------------------------------------------

void* HipRuntime::allocate_managed(std::size_t bytes) {
  if (attribute(hip::kManagedMemory, native(std::max(0, current_device()))) == 0)
    throw Unsupported("this device or its driver has no managed memory (HMM)");
  return GpuCalls::allocate_managed(bytes);
}

std::string HipRuntime::why_not_managed(int device, ManagedUse use) const {
  require(device);
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
bool HipRuntime::managed_migrates(int device) const {
  require(device);
  const char* retry = std::getenv("HSA_XNACK");
  return retry != nullptr && std::string(retry) == "1";
}

void HipRuntime::advise(void* memory, std::size_t bytes, int advice, int device) {
  run(api_.hipMemAdvise, memory, bytes, advice, device < 0 ? hip::kCpuDevice : native(device));
}

void HipRuntime::prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) {
  if (to_device >= 0) require(to_device);
  run(api_.hipMemPrefetchAsync, memory, bytes, to_device < 0 ? hip::kCpuDevice : native(to_device), stream);
}

void* HipRuntime::open_base(const IpcBytes& bytes) {
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

// --- queues ------------------------------------------------------------------------------------------------------

void HipRuntime::copy_here(void* target, const void* source, std::size_t bytes) {
  run(api_.hipMemcpy, target, source, bytes, hip::kCopyDefault);
  // Between devices' memory hipMemcpy itself may return before the copy is done.
  run(api_.hipStreamSynchronize, nullptr);
}

void HipRuntime::copy_here_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) {
  run(api_.hipMemcpyAsync, target, source, bytes, hip::kCopyDefault, stream);
}

void HipRuntime::copy_peer_async(void* target, int target_device, const void* source, int source_device,
                                 std::size_t bytes, StreamHandle stream) {
  run(api_.hipMemcpyPeerAsync, target, native(target_device), source, native(source_device), bytes, stream);
}

// --- kernels -----------------------------------------------------------------------------------------------------

KernelHandle HipRuntime::find_kernel(void* module, const char* kernel_name, bool /*dynamic_shared*/) {
  hip::Function function = nullptr;
  check(api_.hipModuleGetFunction(&function, module, kernel_name), "hipModuleGetFunction", kernel_name);
  return function;
}

std::shared_ptr<DeviceRuntime> open_hip_runtime(const RuntimeRequest& request) {
  return std::make_shared<HipRuntime>(request);
}

}  // namespace linkgauge
