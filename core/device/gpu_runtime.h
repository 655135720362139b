// DeviceRuntime over any GpuDriver: what CUDA and HIP have in common, written once. Bookkeeping of allocations, memory
// kinds and their placement, shared handles, peer access, compiled kernels.
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
#include "device/gpu_driver.h"
#include "device/gpu_kernels.h"

namespace linkgauge {

class GpuRuntime : public DeviceRuntime {
 public:
  // `compiler` is asked for when the first kernel is. `request`'s ordinals are in PCI order over all visible devices;
  // throws Unsupported for one that does not exist, naming `visibility_variable` if that hides some.
  GpuRuntime(std::unique_ptr<GpuDriver> driver, std::function<std::unique_ptr<KernelCompiler>()> open_compiler,
             const RuntimeRequest& request, const char* visibility_variable);
  GpuRuntime(const GpuRuntime&) = delete;
  GpuRuntime& operator=(const GpuRuntime&) = delete;

  RuntimeKind kind() const override { return driver_->kind(); }
  std::string version() const override { return driver_->version(); }
  int count() const override { return static_cast<int>(infos_.size()); }
  DeviceInfo describe(int device) const override;
  MemoryInfo memory(int device) const override;
  void bind_thread(int device) override;
  std::string peer_access(int device, int peer) override;

  void* allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) override;
  void deallocate(void* memory) noexcept override;
  std::string why_not_managed(int device, ManagedUse use) const override;
  bool managed_migrates(int device) const override;
  std::string why_not_pageable(int device) const override;
  bool pageable_migrates(int device) const override;
  void advise_managed(void* memory, std::size_t bytes, int device, ManagedUse use) override;
  void prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) override;
  bool can_share(MemoryKind kind) const override { return kind == MemoryKind::kDevice; }
  SharedHandle share(void* memory) override;
  void* open_shared(int device, const SharedHandle& handle) override;
  void close_shared(void* memory) noexcept override;

  StreamHandle create_stream(int device) override;
  void destroy_stream(StreamHandle stream) noexcept override;
  void synchronize(StreamHandle stream) override { driver_->synchronize(stream); }
  bool done(StreamHandle stream) override { return driver_->done(stream); }
  void copy_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                  StreamHandle stream) override;

  EventHandle create_event(int device) override;
  void destroy_event(EventHandle event) noexcept override { driver_->destroy_event(event); }
  void record(EventHandle event, StreamHandle stream) override { driver_->record(event, stream); }
  void wait(StreamHandle stream, EventHandle event) override { driver_->wait(stream, event); }
  void synchronize_event(EventHandle event) override { driver_->synchronize_event(event); }
  std::int64_t elapsed_ns(EventHandle start, EventHandle stop) override;

  KernelHandle kernel(int device, std::string_view kernel_name) override;
  void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) override {
    driver_->launch(kernel, shape, arguments, stream);
  }
  std::unique_ptr<LinkedKernels> link_kernels(int device, const LinkedCode& code) override;
  std::string why_no_graphs() const override;
  void begin_capture(StreamHandle stream) override { driver_->begin_capture(stream); }
  GraphHandle end_capture(int device, StreamHandle stream) override;
  void launch_graph(GraphHandle graph, StreamHandle stream) override { driver_->launch_graph(graph, stream); }
  void destroy_graph(GraphHandle graph) noexcept override { driver_->destroy_graph(graph); }
  void copy_now(void* target, int target_device, const void* source, int source_device, std::size_t bytes) override;

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
  void require(int device) const;
  void* allocate_as(Origin origin, int device, std::size_t bytes, const AllocateOptions& options);
  void* allocate_fabric(int device, std::size_t bytes);
  std::size_t managed_bytes(int device) const;
  void enable_awaited_peers(int device);

  std::unique_ptr<GpuDriver> driver_;
  bool peer_access_allowed_;
  std::vector<DeviceInfo> infos_;

  mutable std::shared_mutex memory_mutex_;
  std::unordered_map<void*, Allocation> allocations_;
  std::unordered_map<void*, void*> opened_base_;  // what open_shared returned -> base of its mapping
  std::map<GpuDriver::IpcBytes, Opened> opened_;  // a handle can be opened once per process: further users share it

  // Pairs (device, peer) that were asked for while this process had nothing on `peer`.
  std::mutex peers_mutex_;
  std::vector<std::pair<int, int>> awaited_peers_;

  GpuKernels kernels_;
};

}  // namespace linkgauge
