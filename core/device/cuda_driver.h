// GpuDriver over the CUDA driver API. Uses each device's primary context, which NCCL, UCX and MPI use too.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "device/cuda_api.h"
#include "device/gpu_driver.h"
#include "device/nvml_api.h"

namespace linkgauge {

class CudaDriver final : public GpuDriver {
 public:
  // Throws Unsupported with the reason: no driver, driver too old, no device, no permission.
  CudaDriver();
  ~CudaDriver() override;
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  int supported_version() const { return supported_version_; }  // 13000 for CUDA 13.0

  std::string_view name() const override { return "cuda"; }
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
    std::atomic<cuda::Context> context{nullptr};  // retained on first use: a context costs memory on its device
  };

  void check(cuda::Result result, const char* call, const std::string& detail = {}) const;
  void check_memory(cuda::Result result, const char* call, std::size_t bytes) const;
  cuda::Context context(int device) const;
  cuda::Device native(int device) const { return devices_[static_cast<std::size_t>(device)]->identity.native; }
  int attribute(cuda::Attribute which, cuda::Device device) const;
  bool has_locations() const;                                            // of memory, as CUDA 12.2 brought them
  void advise(void* memory, std::size_t bytes, int advice, int device);  // -1: of the host
  int current_device() const;                                            // index, or -1

  cuda::Api api_;
  nvml::Library nvml_;
  int supported_version_ = 0;
  mutable std::mutex contexts_mutex_;  // while a context is made
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace linkgauge
