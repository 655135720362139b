// GpuDriver over the HIP runtime. HIP's devices have their primary contexts by themselves; what is current is an
// ordinal.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/gpu_driver.h"
#include "device/hip_api.h"

namespace linkgauge {

class HipDriver final : public GpuDriver {
 public:
  // Throws Unsupported with the reason: no runtime, runtime too old, no device, no permission.
  HipDriver();

  const std::string& library_path() const { return library_path_; }

  std::string_view name() const override { return "hip"; }
  std::string version() const override;
  std::vector<GpuIdentity> enumerate() const override;
  void select(std::vector<GpuIdentity> devices) override;
  DeviceInfo describe(int device) const override;
  std::uintptr_t enter(int device) override;
  void leave(std::uintptr_t previous) noexcept override;
  MemoryInfo memory() const override;
  void* allocate_device(std::size_t bytes) override;
  void free_device(void* memory) noexcept override;
  void* allocate_pinned(std::size_t bytes, bool write_combined) override;
  void free_pinned(void* memory) noexcept override;
  void* allocate_managed(std::size_t bytes) override;
  std::string why_not_managed(int device, ManagedUse use) const override;
  bool managed_migrates(int device) const override;
  void advise_managed(void* memory, std::size_t bytes, int device, ManagedUse use) override;
  void prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) override;
  void register_host(void* memory, std::size_t bytes) override;
  void unregister_host(void* memory) noexcept override;
  AddressRange address_range(const void* memory) const override;
  IpcBytes share(void* base) const override;
  void* open_shared(const IpcBytes& bytes) override;
  void close_shared(void* base) noexcept override;
  bool in_use(int device) const override;
  bool can_access_peer(int device, int peer) const override;
  void enable_peer_access(int peer) override;
  StreamHandle create_stream() override;
  void destroy_stream(StreamHandle stream) noexcept override;
  void synchronize(StreamHandle stream) override;
  bool done(StreamHandle stream) override;
  std::string lacks_for_graphs() const override;
  void begin_capture(StreamHandle stream) override;
  GraphHandle end_capture(StreamHandle stream) override;
  void launch_graph(GraphHandle graph, StreamHandle stream) override;
  void destroy_graph(GraphHandle graph) noexcept override;
  EventHandle create_event() override;
  void destroy_event(EventHandle event) noexcept override;
  void record(EventHandle event, StreamHandle stream) override;
  void wait(StreamHandle stream, EventHandle event) override;
  void synchronize_event(EventHandle event) override;
  float elapsed_ms(EventHandle start, EventHandle stop) override;
  void copy(void* target, const void* source, std::size_t bytes) override;
  void copy_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) override;
  void copy_peer_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                       StreamHandle stream) override;
  void* load_module(const std::string& image) override;
  void unload_module(void* module) noexcept override;
  KernelHandle find_kernel(void* module, const char* kernel_name, bool dynamic_shared) override;
  void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) override;

 private:
  struct Device {
    explicit Device(GpuIdentity which) : identity(std::move(which)) {}
    GpuIdentity identity;
    std::atomic<bool> used{false};
  };

  void check(hip::Result result, const char* call, const std::string& detail = {}) const;
  void check_memory(hip::Result result, const char* call, std::size_t bytes) const;
  int native(int device) const { return devices_[static_cast<std::size_t>(device)]->identity.native; }
  int attribute(hip::Attribute which, int native_device) const;
  std::string architecture(int native_device, const std::string& pci_address) const;
  int current_device() const;  // index, or -1

  hip::Api api_;
  std::string library_path_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace linkgauge
