#include "device/cuda_driver.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/errors.h"
#include "device/nvrtc_compiler.h"
#include "device/runtimes.h"

namespace linkgauge {
namespace {

std::string cuda_version_text(int version) {
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

CudaRuntime::CudaRuntime(const RuntimeRequest& request)
    : GpuCalls([this, folders = request.library_folders] { return open_nvrtc(folders, supported_version_); }, request) {
  const SharedLibrary library({"libcuda.so.1"});
  if (!library) throw Unsupported("no CUDA driver: " + library.why());
  const std::string missing = bind_symbols(library, api_.entries());
  if (!missing.empty())
    throw Unsupported("the CUDA driver is too old: " + library.path() + " lacks " + missing + "; " +
                      cuda_version_text(cuda::kOldestDriver) + " or newer is needed");
  const cuda::Result started = api_.cuInit(0);
  if (started != cuda::kSuccess) throw Unsupported(reason_of(started, CudaVendor::error_name(api_, started)));
  run(api_.cuDriverGetVersion, &supported_version_);
  if (supported_version_ < cuda::kOldestDriver)
    throw Unsupported("the CUDA driver is too old: it supports CUDA " + cuda_version_text(supported_version_) + ", " +
                      cuda_version_text(cuda::kOldestDriver) + " or newer is needed");
  int count = 0;
  const cuda::Result counted = api_.cuDeviceGetCount(&count);
  if (counted != cuda::kSuccess || count == 0)
    throw Unsupported(reason_of(counted, CudaVendor::error_name(api_, counted)));
  choose_devices(request, "CUDA_VISIBLE_DEVICES");
}

CudaRuntime::~CudaRuntime() {
  unload_kernels();
  for (const auto& device : devices_) {
    const cuda::Context mine = device->state.load();
    if (mine == nullptr) continue;
    cuda::Context current = nullptr;
    if (api_.cuCtxGetCurrent(&current) == cuda::kSuccess && current == mine) (void)api_.cuCtxSetCurrent(nullptr);
    (void)api_.cuDevicePrimaryCtxRelease_v2(device->identity.native);
  }
}

int CudaRuntime::current_device() const {
  cuda::Context current = nullptr;
  if (api_.cuCtxGetCurrent(&current) != cuda::kSuccess || current == nullptr) return -1;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->state.load(std::memory_order_relaxed) == current) return static_cast<int>(i);
  }
  return -1;
}

cuda::Context CudaRuntime::context(int device) const {
  Device& own = entry(device);
  cuda::Context found = own.state.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  const std::lock_guard lock(contexts_mutex_);
  found = own.state.load();
  if (found == nullptr) {
    check(api_.cuDevicePrimaryCtxRetain(&found, own.identity.native), "cuDevicePrimaryCtxRetain",
          "device " + std::to_string(device));
    own.state.store(found, std::memory_order_release);
  }
  return found;
}

// --- devices -----------------------------------------------------------------------------------------------------

std::string CudaRuntime::version() const {
  const std::string driver = nvml_.driver_version();
  return "CUDA " + cuda_version_text(supported_version_) + (driver.empty() ? "" : ", driver " + driver);
}

int CudaRuntime::native_of(int ordinal) const {
  cuda::Device native = 0;
  run(api_.cuDeviceGet, &native, ordinal);
  return native;
}

DeviceInfo CudaRuntime::describe_own(int device) const {
  const cuda::Device own = native(device);
  DeviceInfo info = facts_of(device);
  cuda::Uuid uuid{};
  run(api_.cuDeviceGetUuid_v2, &uuid, own);
  info.uuid = uuid_text(uuid);
  const int major = attribute(cuda::kComputeCapabilityMajor, own);
  info.architecture = "sm_" + std::to_string(10 * major + attribute(cuda::kComputeCapabilityMinor, own));
  const nvml::Facts facts = nvml_.facts(info.pci_address);
  info.serial = facts.serial;
  info.vbios = facts.vbios;
  return info;
}

std::uintptr_t CudaRuntime::enter(int device) const {
  const cuda::Context wanted = context(device);
  cuda::Context previous = nullptr;
  run(api_.cuCtxGetCurrent, &previous);
  if (previous != wanted) run(api_.cuCtxSetCurrent, wanted);
  return reinterpret_cast<std::uintptr_t>(previous);
}

void CudaRuntime::leave(std::uintptr_t previous) const noexcept {
  const auto context_before = reinterpret_cast<cuda::Context>(previous);
  if (context_before != nullptr) (void)api_.cuCtxSetCurrent(context_before);
}

void CudaRuntime::enable_peer_access(int peer) {
  const cuda::Result result = api_.cuCtxEnablePeerAccess(context(peer), 0);
  if (result != cuda::kPeerAccessAlreadyEnabled) check(result, "cuCtxEnablePeerAccess");
}

// --- memory ------------------------------------------------------------------------------------------------------

std::string CudaRuntime::why_not_managed(int device, ManagedUse use) const {
  require(device);
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
bool CudaRuntime::managed_migrates(int device) const {
  require(device);
  return true;
}

bool CudaRuntime::has_locations() const {
  constexpr int kSince = 12020;
  return supported_version_ >= kSince && api_.cuMemPrefetchAsync_v2 != nullptr && api_.cuMemAdvise_v2 != nullptr;
}

void CudaRuntime::advise(void* memory, std::size_t bytes, int advice, int device) {
  if (has_locations()) {
    const cuda::Location location =
        device < 0 ? cuda::Location{cuda::kLocationHost, 0} : cuda::Location{cuda::kLocationDevice, native(device)};
    run(api_.cuMemAdvise_v2, CudaVendor::address(memory), bytes, advice, location);
  } else {
    const cuda::Device where = device < 0 ? cuda::kCpuDevice : native(device);
    run(api_.cuMemAdvise, CudaVendor::address(memory), bytes, advice, where);
  }
}

// What the driver documents for pages that are mapped, never moved.
void CudaRuntime::advise_zero_copy(void* memory, std::size_t bytes, int device) {
  advise(memory, bytes, cuda::kAdvisePreferredLocation, -1);
  advise(memory, bytes, cuda::kAdviseAccessedBy, device);
}

void CudaRuntime::prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) {
  if (to_device >= 0) require(to_device);
  if (has_locations()) {
    const cuda::Location location = to_device < 0 ? cuda::Location{cuda::kLocationHost, 0}
                                                  : cuda::Location{cuda::kLocationDevice, native(to_device)};
    run(api_.cuMemPrefetchAsync_v2, CudaVendor::address(memory), bytes, location, 0, stream);
  } else {
    const cuda::Device where = to_device < 0 ? cuda::kCpuDevice : native(to_device);
    run(api_.cuMemPrefetchAsync, CudaVendor::address(memory), bytes, where, stream);
  }
}

void* CudaRuntime::open_base(const IpcBytes& bytes) {
  cuda::IpcHandle handle{};
  if (bytes.size() != sizeof(handle)) throw CallerError("open_shared: not a handle of the CUDA runtime");
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  cuda::DevicePointer base = 0;
  check(api_.cuIpcOpenMemHandle_v2(&base, handle, cuda::kIpcLazyEnablePeerAccess), "cuIpcOpenMemHandle_v2",
        "the memory belongs to another process");
  return CudaVendor::pointer(base);
}

// --- queues ------------------------------------------------------------------------------------------------------

void CudaRuntime::copy_here(void* target, const void* source, std::size_t bytes) {
  run(api_.cuMemcpy, CudaVendor::address(target), CudaVendor::address(source), bytes);
  // Between devices' memory cuMemcpy itself returns before the copy is done.
  run(api_.cuStreamSynchronize, nullptr);
}

void CudaRuntime::copy_here_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) {
  run(api_.cuMemcpyAsync, CudaVendor::address(target), CudaVendor::address(source), bytes, stream);
}

void CudaRuntime::copy_peer_async(void* target, int target_device, const void* source, int source_device,
                                  std::size_t bytes, StreamHandle stream) {
  run(api_.cuMemcpyPeerAsync, CudaVendor::address(target), context(target_device), CudaVendor::address(source),
      context(source_device), bytes, stream);
}

// --- kernels -----------------------------------------------------------------------------------------------------

KernelHandle CudaRuntime::find_kernel(void* module, const char* kernel_name, bool dynamic_shared) {
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

std::shared_ptr<DeviceRuntime> open_cuda_runtime(const RuntimeRequest& request) {
  return std::make_shared<CudaRuntime>(request);
}

}  // namespace linkgauge
