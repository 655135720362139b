#include "device/gpu_runtime.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/wire.h"
#include "device/host_placement.h"

namespace linkgauge {
namespace {

// Drivers cut small allocations from blocks of this size, and a shared handle exports the whole block. Whole blocks, so
// that no two buffers lie in one.
constexpr std::size_t kShareBlockBytes = std::size_t{2} << 20;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
}

// A SharedHandle's bytes: these, then the vendor's handle.
struct GpuHandleHead {
  std::uint64_t offset = 0;        // of the buffer from the base that the vendor's handle is of
  std::uint64_t fabric_bytes = 0;  // how many a handle of the fabric is of; 0: it is none
};

SharedHandle joined(const GpuHandleHead& head, const std::string& bytes) {
  return {WireWriter().value(head).rest(bytes).message()};
}

}  // namespace

void GpuRuntime::choose_devices(const RuntimeRequest& request, const char* visibility_variable) {
  const std::vector<GpuIdentity> visible = enumerate();
  std::vector<int> ordinals = request.devices;
  if (ordinals.empty()) {
    for (std::size_t i = 0; i < visible.size(); ++i) ordinals.push_back(static_cast<int>(i));
  }
  std::vector<GpuIdentity> chosen;
  for (const int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= static_cast<int>(visible.size())) {
      const char* shown = std::getenv(visibility_variable);
      throw Unsupported("device " + std::string(name()) + ":" + std::to_string(ordinal) +
                        " does not exist: there are " + std::to_string(visible.size()) + ", numbered from 0" +
                        (shown != nullptr ? std::string(" (") + visibility_variable + "=" + shown + " hides all others)"
                                          : std::string()));
    }
    chosen.push_back(visible[static_cast<std::size_t>(ordinal)]);
  }
  select(chosen);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    DeviceInfo info = describe_own(static_cast<int>(i));
    info.ordinal = ordinals[i];
    info.numa_node = numa_node_of_pci(info.pci_address);
    infos_.push_back(std::move(info));
  }
}

void GpuRuntime::require(int device) const {
  if (device < 0 || device >= count())
    throw CallerError("device " + std::to_string(device) + " of runtime " + std::string(name()) +
                      " does not exist: it was opened for " + std::to_string(count()));
}

DeviceInfo GpuRuntime::describe(int device) const {
  require(device);
  return infos_[static_cast<std::size_t>(device)];
}

void GpuRuntime::bind_thread(int device) {
  require(device);
  (void)enter(device);
  enable_awaited_peers(device);
}

std::string GpuRuntime::peer_access(int device, int peer) {
  require(device);
  require(peer);
  if (device == peer) return {};
  const std::string pair =
      "device " + std::to_string(device) + " may not access memory of device " + std::to_string(peer) + ": ";
  if (!peer_access_allowed_) return pair + "peer access is off in this launch";
  try {
    if (!can_access_peer(device, peer)) return pair + "the driver says that there is no peer path";
    // A peer that only other processes use: what they share is opened with access. A context there just for this would
    // cost hundreds of megabytes in every process, so it waits until this process uses the peer itself.
    const std::lock_guard lock(peers_mutex_);
    if (!in_use(peer)) {
      awaited_peers_.emplace_back(device, peer);
      return {};
    }
    const CurrentDevice current(*this, device);
    enable_peer_access(peer);
  } catch (const Error& error) {
    return pair + error.what();
  }
  return {};
}

void GpuRuntime::enable_awaited_peers(int device) {
  const std::lock_guard lock(peers_mutex_);
  for (auto pair = awaited_peers_.begin(); pair != awaited_peers_.end();) {
    if (pair->second != device) {
      ++pair;
      continue;
    }
    const CurrentDevice current(*this, pair->first);
    enable_peer_access(device);
    pair = awaited_peers_.erase(pair);
  }
}

// --- memory ------------------------------------------------------------------------------------------------------

void* GpuRuntime::allocate_as(Origin origin, int device, std::size_t bytes, const AllocateOptions& options) {
  switch (origin) {
    case Origin::kDevice:
      return allocate_device(bytes);
    case Origin::kFabric:
      return allocate_reached(device, bytes);
    case Origin::kManaged: {
      const std::size_t free_bytes = memory_here().free_bytes;
      // Managed memory beyond the device's thrashes, and can hang the GPU for everybody on it. What was allocated
      // before may not lie there yet, so it counts in full.
      const std::size_t before = managed_bytes(device);
      if (bytes + before > free_bytes)
        throw MemoryError(std::to_string(bytes) + " bytes of managed memory on device " + std::to_string(device) +
                          (before > 0 ? ", beside " + std::to_string(before) + " allocated before," : "") +
                          " are more than the " + std::to_string(free_bytes) + " that are free there");
      return allocate_managed(bytes);
    }
    case Origin::kPinned:
      return allocate_pinned(bytes, options.write_combined);
    case Origin::kMapped:
      return map_host_memory(bytes, options.numa_node, options.huge_pages);
    case Origin::kRegistered: {
      void* memory = map_host_memory(bytes, options.numa_node, options.huge_pages);
      try {
        register_host(memory, bytes);
      } catch (...) {
        unmap_host_memory(memory, bytes);
        throw;
      }
      return memory;
    }
  }
  return nullptr;
}

// What enabling peer access does for other memory is said of each piece of this. Devices that this process does not use
// reach it by what their own processes open.
void* GpuRuntime::allocate_reached(int device, std::size_t bytes) {
  void* memory = allocate_fabric(device, bytes);
  try {
    for (int peer = 0; peer < count(); ++peer) {
      const bool reaches = peer == device || (peer_access_allowed_ && in_use(peer) && can_access_peer(peer, device));
      if (reaches) let_reach(peer, memory, bytes);
    }
  } catch (...) {
    free_fabric(memory, device, bytes);
    throw;
  }
  return memory;
}

std::size_t GpuRuntime::managed_bytes(int device) const {
  const std::shared_lock lock(memory_mutex_);
  std::size_t bytes = 0;
  for (const auto& [memory, allocation] : allocations_) {
    if (allocation.origin == Origin::kManaged && allocation.device == device) bytes += allocation.bytes;
  }
  return bytes;
}

void* GpuRuntime::allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) {
  require(device);
  const CurrentDevice current(*this, device);
  // What was asked for by node must lie there; what is only nearest to the device is the driver's own pinned memory,
  // made while that node is preferred. The driver gives no huge pages and pins no write-combined pages of ours.
  Origin origin = options.fabric_handle ? Origin::kFabric : Origin::kDevice;
  if (kind == MemoryKind::kManaged) origin = Origin::kManaged;
  if (kind == MemoryKind::kPageable) origin = Origin::kMapped;
  if (kind == MemoryKind::kPinned) {
    const bool own_pages = options.numa_node >= 0 || options.huge_pages;
    if (options.write_combined && options.huge_pages)
      throw Unsupported("pinned memory cannot be both write-combined and made of huge pages");
    if (options.write_combined && options.numa_node >= 0 && numa_node_count() > 1)
      throw Unsupported("write-combined memory lies where the driver puts it: it cannot be placed on NUMA node " +
                        std::to_string(options.numa_node));
    origin = own_pages && !options.write_combined ? Origin::kRegistered : Origin::kPinned;
  }
  const std::size_t taken =
      kind == MemoryKind::kDevice ? rounded_up(bytes, kShareBlockBytes) : std::max<std::size_t>(bytes, 1);
  const PreferNode prefer(options.numa_node < 0 ? infos_[static_cast<std::size_t>(device)].numa_node : -1);
  enable_awaited_peers(device);
  void* memory = allocate_as(origin, device, taken, options);
  const std::unique_lock lock(memory_mutex_);
  allocations_[memory] = {origin, device, taken};
  return memory;
}

void GpuRuntime::deallocate(void* memory) noexcept {
  if (memory == nullptr) return;
  Allocation allocation{};
  {
    const std::unique_lock lock(memory_mutex_);
    const auto found = allocations_.find(memory);
    if (found == allocations_.end()) return;
    allocation = found->second;
    allocations_.erase(found);
  }
  try {
    const CurrentDevice current(*this, allocation.device);
    switch (allocation.origin) {
      case Origin::kDevice:
      case Origin::kManaged:
        free_device(memory);
        break;
      case Origin::kFabric:
        free_fabric(memory, allocation.device, allocation.bytes);
        break;
      case Origin::kPinned:
        free_pinned(memory);
        break;
      case Origin::kRegistered:
        unregister_host(memory);
        unmap_host_memory(memory, allocation.bytes);
        break;
      case Origin::kMapped:
        unmap_host_memory(memory, allocation.bytes);
        break;
    }
  } catch (const Error&) {
    // A device that failed gives its memory back when the process ends.
  }
}

SharedHandle GpuRuntime::share(void* memory) {
  Allocation allocation{};
  {
    const std::shared_lock lock(memory_mutex_);
    const auto found = allocations_.find(memory);
    if (found == allocations_.end()) throw CallerError("share: not memory that this runtime allocated");
    allocation = found->second;
  }
  if (allocation.origin != Origin::kDevice && allocation.origin != Origin::kFabric)
    throw Unsupported("only device memory can be shared between processes through " + std::string(name()));
  const CurrentDevice current(*this, allocation.device);
  if (allocation.origin == Origin::kFabric) return joined({0, allocation.bytes}, share_fabric(memory));
  const AddressRange range = address_range(memory);
  const auto offset = static_cast<std::uint64_t>(static_cast<char*>(memory) - static_cast<char*>(range.base));
  return joined({offset, 0}, share_base(range.base));
}

void* GpuRuntime::open_shared(int device, const SharedHandle& handle) {
  require(device);
  if (!peer_access_allowed_)
    throw Unsupported("peer access is off in this launch, so memory of another process cannot be opened");
  if (handle.bytes.size() <= sizeof(GpuHandleHead)) throw CallerError("open_shared: not a handle of this runtime");
  WireReader reader(handle.bytes);
  const auto head = reader.value<GpuHandleHead>();
  IpcBytes bytes = text_of(reader.rest());
  const bool fabric = head.fabric_bytes > 0;
  const std::unique_lock lock(memory_mutex_);
  auto found = opened_.find(bytes);
  const CurrentDevice current(*this, device);
  if (found == opened_.end()) {
    void* base = fabric ? open_fabric(device, bytes, head.fabric_bytes) : open_base(bytes);
    found = opened_.emplace(std::move(bytes), Opened{base, device, 0, head.fabric_bytes}).first;
  } else if (fabric) {
    let_reach(device, found->second.base, found->second.fabric_bytes);
  }
  ++found->second.users;
  void* memory = static_cast<char*>(found->second.base) + head.offset;
  opened_base_[memory] = found->second.base;
  return memory;
}

void GpuRuntime::close_shared(void* memory) noexcept {
  const std::unique_lock lock(memory_mutex_);
  const auto known = opened_base_.find(memory);
  if (known == opened_base_.end()) return;
  const auto found = std::find_if(opened_.begin(), opened_.end(),
                                  [&](const auto& entry) { return entry.second.base == known->second; });
  if (found == opened_.end() || --found->second.users > 0) return;
  try {
    const CurrentDevice current(*this, found->second.device);
    if (found->second.fabric_bytes > 0) {
      free_fabric(found->second.base, found->second.device, found->second.fabric_bytes);
    } else {
      close_base(found->second.base);
    }
  } catch (const Error&) {
    // The owner's process or the device is gone; so is the mapping.
  }
  std::erase_if(opened_base_, [&](const auto& entry) { return entry.second == found->second.base; });
  opened_.erase(found);
}

// --- queues ------------------------------------------------------------------------------------------------------

void GpuRuntime::copy_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                            StreamHandle stream) {
  if (bytes == 0) return;
  if (target_device >= 0 && source_device >= 0 && target_device != source_device) {
    copy_peer_async(target, target_device, source, source_device, bytes, stream);
  } else {
    copy_here_async(target, source, bytes, stream);
  }
}

void GpuRuntime::copy_now(void* target, int target_device, const void* source, int source_device, std::size_t bytes) {
  if (bytes == 0) return;
  const int device = target_device >= 0 ? target_device : source_device;
  if (device < 0) {
    std::memcpy(target, source, bytes);
    return;
  }
  require(device);
  const CurrentDevice current(*this, device);
  copy_here(target, source, bytes);
}

KernelHandle GpuRuntime::kernel(int device, std::string_view kernel_name) {
  require(device);
  return kernels_.find(device, infos_[static_cast<std::size_t>(device)].architecture, kernel_name);
}

std::unique_ptr<LinkedKernels> GpuRuntime::link_kernels(int device, const LinkedCode& code) {
  require(device);
  return kernels_.link(device, infos_[static_cast<std::size_t>(device)].architecture, code);
}

}  // namespace linkgauge
