// What the GPU runtimes have in common, whatever the vendor: bookkeeping of allocations, memory kinds and their
// placement, shared handles, peer access, compiled kernels. GpuCalls brings one vendor's calls to it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/device_runtime.h"
#include "device/gpu_kernels.h"

namespace linkgauge {

struct GpuIdentity {
  int native = -1;  // the vendor's own ordinal
  std::string pci_address;
};

// Devices are indices into the list that choose_devices() made. Vendors' calls throw RuntimeCallError with the vendor's
// own call and code; the allocating ones throw MemoryError when there is none left. Those marked (current) act on the
// device that enter() made current in this thread.
class GpuRuntime : public DeviceRuntime, public GpuModules {
 public:
  int count() const final { return static_cast<int>(infos_.size()); }
  DeviceInfo describe(int device) const final;
  void bind_thread(int device) final;
  std::string peer_access(int device, int peer) final;

  void* allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) final;
  void deallocate(void* memory) noexcept final;
  bool can_share(MemoryKind kind) const final { return kind == MemoryKind::kDevice; }
  SharedHandle share(void* memory) final;
  void* open_shared(int device, const SharedHandle& handle) final;
  void close_shared(void* memory) noexcept final;

  void copy_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                  StreamHandle stream) final;
  void copy_now(void* target, int target_device, const void* source, int source_device, std::size_t bytes) final;
  KernelHandle kernel(int device, std::string_view kernel_name) final;
  std::unique_ptr<LinkedKernels> link_kernels(int device, const LinkedCode& code) final;

 protected:
  using IpcBytes = std::string;  // as the vendor's handle holds them
  struct AddressRange {
    void* base = nullptr;
    std::size_t bytes = 0;
  };

  // `open_compiler` is asked for when the first kernel is.
  GpuRuntime(std::function<std::unique_ptr<KernelCompiler>()> open_compiler, const RuntimeRequest& request)
      : peer_access_allowed_(request.peer_access), kernels_(*this, std::move(open_compiler), request.kernel_cache) {}
  // Once the vendor's library is there. The request's ordinals are in PCI order over all visible devices; throws
  // Unsupported for one that does not exist, naming `visibility_variable` if that hides some.
  void choose_devices(const RuntimeRequest& request, const char* visibility_variable);
  void unload_kernels() noexcept { kernels_.unload(); }  // while the vendor's library is still there
  void require(int device) const;

  // The vendor's part.
  virtual std::vector<GpuIdentity> enumerate() const = 0;  // all that the process may see, in PCI order
  virtual void select(std::vector<GpuIdentity> devices) = 0;
  virtual DeviceInfo describe_own(int device) const = 0;
  virtual MemoryInfo memory_here() const = 0;  // (current)

  virtual void* allocate_device(std::size_t bytes) = 0;                       // (current)
  virtual void free_device(void* memory) noexcept = 0;                        // device and managed memory
  virtual void* allocate_pinned(std::size_t bytes, bool write_combined) = 0;  // (current)
  virtual void free_pinned(void* memory) noexcept = 0;
  virtual void* allocate_managed(std::size_t bytes) = 0;            // (current)
  virtual void register_host(void* memory, std::size_t bytes) = 0;  // (current)
  virtual void unregister_host(void* memory) noexcept = 0;

  // Memory whose handle is of the NVLink fabric. Throws Unsupported with the call and why where it cannot be had.
  // `bytes` are those that were asked for; the other calls are of such memory only.
  virtual void* allocate_fabric(int device, std::size_t bytes) = 0;  // (current)
  virtual void free_fabric(void* /*base*/, int /*device*/, std::size_t /*bytes*/) noexcept {}
  virtual IpcBytes share_fabric(void* /*base*/) const { return {}; }
  virtual void* open_fabric(int /*device*/, const IpcBytes& /*handle*/, std::size_t /*bytes*/) { return nullptr; }
  virtual void let_reach(int /*device*/, void* /*base*/, std::size_t /*bytes*/) {}  // its kernels and copies

  virtual AddressRange address_range(const void* memory) const = 0;
  virtual IpcBytes share_base(void* base) const = 0;
  virtual void* open_base(const IpcBytes& bytes) = 0;  // (current)
  virtual void close_base(void* base) noexcept = 0;    // (current)

  // Whether this process uses the device already: whether its context is there.
  virtual bool in_use(int device) const = 0;
  virtual bool can_access_peer(int device, int peer) const = 0;
  virtual void enable_peer_access(int peer) = 0;  // (current); twice does no harm

  virtual void copy_here(void* target, const void* source, std::size_t bytes) = 0;  // synchronous
  virtual void copy_here_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) = 0;
  virtual void copy_peer_async(void* target, int target_device, const void* source, int source_device,
                               std::size_t bytes, StreamHandle stream) = 0;

 private:
  // How an allocation was made, which is how it must be given back.
  enum class Origin : std::uint8_t { kDevice, kFabric, kPinned, kRegistered, kMapped, kManaged };
  struct Allocation {
    Origin origin;
    int device;
    std::size_t bytes;
  };
  struct Opened {
    void* base;
    int device;
    int users;
    std::size_t fabric_bytes;  // 0: by an IPC handle
  };
  void* allocate_as(Origin origin, int device, std::size_t bytes, const AllocateOptions& options);
  void* allocate_reached(int device, std::size_t bytes);
  std::size_t managed_bytes(int device) const;
  void enable_awaited_peers(int device);

  bool peer_access_allowed_;
  std::vector<DeviceInfo> infos_;

  mutable std::shared_mutex memory_mutex_;
  std::unordered_map<void*, Allocation> allocations_;
  std::unordered_map<void*, void*> opened_base_;  // what open_shared returned -> base of its mapping
  std::map<IpcBytes, Opened> opened_;             // a handle can be opened once per process: further users share it

  // Pairs (device, peer) that were asked for while this process had nothing on `peer`.
  std::mutex peers_mutex_;
  std::vector<std::pair<int, int>> awaited_peers_;

  GpuKernels kernels_;
};

}  // namespace linkgauge
