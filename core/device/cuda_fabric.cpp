// CUDA's memory with handles of the NVLink fabric: 64 bytes that a process of any node of one NVLink domain opens,
// where the driver gave both an IMEX channel.
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/errors.h"
#include "device/cuda_driver.h"

namespace linkgauge {
namespace {

constexpr char kChannels[] = "/dev/nvidia-caps-imex-channels";
constexpr char kCreate[] = "cuMemCreate with CU_MEM_HANDLE_TYPE_FABRIC";
constexpr char kImport[] = "cuMemImportFromShareableHandle of CU_MEM_HANDLE_TYPE_FABRIC";

cuda::AllocationProperties properties_of(cuda::Device native) {
  cuda::AllocationProperties properties{};
  properties.type = cuda::kAllocationPinned;
  properties.handle_types = cuda::kHandleFabric;
  properties.location = {cuda::kLocationDevice, native};
  return properties;
}

// What a refusal lacks, as far as files tell.
std::string about_channels() {
  std::error_code none;
  std::string refused;
  for (const auto& entry : std::filesystem::directory_iterator(kChannels, none)) {
    const std::string path = entry.path().string();
    if (access(path.c_str(), R_OK | W_OK) == 0)
      return "this process may use the IMEX channel " + path +
             ", so what is missing is nvidia-imex, on each node of the " + "NVLink domain";
    refused = path;
  }
  if (!refused.empty()) return "this user may not read and write the IMEX channel " + refused;
  return std::string("there is no IMEX channel: ") + kChannels +
         "/channel0 is not here; the administrator makes it (option NVreg_CreateImexChannel0=1 of the module "
         "nvidia), " +
         "and containers must be given it";
}

}  // namespace

std::string CudaRuntime::why_no_fabric(int device) const {
  const bool calls = api_.cuMemCreate != nullptr && api_.cuMemRelease != nullptr &&
                     api_.cuMemAddressReserve != nullptr && api_.cuMemAddressFree != nullptr &&
                     api_.cuMemMap != nullptr && api_.cuMemUnmap != nullptr && api_.cuMemSetAccess != nullptr &&
                     api_.cuMemGetAllocationGranularity != nullptr && api_.cuMemRetainAllocationHandle != nullptr &&
                     api_.cuMemExportToShareableHandle != nullptr && api_.cuMemImportFromShareableHandle != nullptr;
  if (calls && attribute(cuda::kFabricHandles, native(device)) != 0) return "";
  return "device " + std::to_string(device) +
         " or its driver has no fabric handles (CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED is 0): Hopper or "
         "newer "
         "and a driver of CUDA 12.4 or newer have; leave --handles out";
}

std::size_t CudaRuntime::whole_pieces(int device, std::size_t bytes) const {
  const cuda::AllocationProperties properties = properties_of(native(device));
  std::size_t piece = 0;
  run(api_.cuMemGetAllocationGranularity, &piece, &properties, cuda::kGranularityMinimum);
  return (bytes + piece - 1) / piece * piece;
}

void CudaRuntime::check_fabric(cuda::Result result, const char* call, int device) const {
  if (result != cuda::kNotPermitted && result != cuda::kNotSupported) return;
  throw Unsupported(std::string(call) + " failed with " + CudaVendor::error_name(api_, result) + " (" +
                    std::to_string(result) + ") on device " + std::to_string(device) + ": " + about_channels());
}

// What is mapped keeps the memory: the handle is given back either way.
void* CudaRuntime::map_fabric(cuda::MemoryHandle handle, std::size_t bytes) {
  cuda::DevicePointer place = 0;
  const cuda::Result reserved = api_.cuMemAddressReserve(&place, bytes, 0, 0, 0);
  const cuda::Result mapped = reserved == cuda::kSuccess ? api_.cuMemMap(place, bytes, 0, handle, 0) : cuda::kSuccess;
  (void)api_.cuMemRelease(handle);
  check(reserved, "cuMemAddressReserve");
  if (mapped != cuda::kSuccess) (void)api_.cuMemAddressFree(place, bytes);
  check(mapped, "cuMemMap");
  return CudaVendor::pointer(place);
}

void* CudaRuntime::allocate_fabric(int device, std::size_t bytes) {
  if (std::string reason = why_no_fabric(device); !reason.empty()) throw Unsupported(reason);
  const cuda::AllocationProperties properties = properties_of(native(device));
  const std::size_t taken = whole_pieces(device, bytes);
  cuda::MemoryHandle handle = 0;
  const cuda::Result made = api_.cuMemCreate(&handle, taken, &properties, 0);
  check_fabric(made, kCreate, device);
  check_memory(made, kCreate, taken);
  return map_fabric(handle, taken);
}

void CudaRuntime::free_fabric(void* base, int device, std::size_t bytes) noexcept {
  try {
    const std::size_t taken = whole_pieces(device, bytes);
    (void)api_.cuMemUnmap(CudaVendor::address(base), taken);
    (void)api_.cuMemAddressFree(CudaVendor::address(base), taken);
  } catch (const Error&) {  // the device is gone, and the mapping with it
  }
}

GpuRuntime::IpcBytes CudaRuntime::share_fabric(void* base) const {
  cuda::MemoryHandle handle = 0;
  run(api_.cuMemRetainAllocationHandle, &handle, base);
  cuda::FabricHandle shown{};
  const cuda::Result exported = api_.cuMemExportToShareableHandle(&shown, handle, cuda::kHandleFabric, 0);
  (void)api_.cuMemRelease(handle);
  check(exported, "cuMemExportToShareableHandle");
  return {reinterpret_cast<const char*>(shown.data), sizeof(shown.data)};
}

void* CudaRuntime::open_fabric(int device, const IpcBytes& handle, std::size_t bytes) {
  cuda::FabricHandle shown{};
  if (handle.size() != sizeof(shown.data)) throw CallerError("open_shared: not a fabric handle of the CUDA runtime");
  std::memcpy(shown.data, handle.data(), sizeof(shown.data));
  if (std::string reason = why_no_fabric(device); !reason.empty()) throw Unsupported(reason);
  cuda::MemoryHandle memory = 0;
  const cuda::Result opened = api_.cuMemImportFromShareableHandle(&memory, &shown, cuda::kHandleFabric);
  check_fabric(opened, kImport, device);
  check(opened, kImport);
  void* base = map_fabric(memory, whole_pieces(device, bytes));
  try {
    let_reach(device, base, bytes);
  } catch (...) {
    free_fabric(base, device, bytes);
    throw;
  }
  return base;
}

void CudaRuntime::let_reach(int device, void* base, std::size_t bytes) {
  const cuda::Access access{{cuda::kLocationDevice, native(device)}, cuda::kAccessReadWrite};
  run(api_.cuMemSetAccess, CudaVendor::address(base), whole_pieces(device, bytes), &access, 1);
}

}  // namespace linkgauge
