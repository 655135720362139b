// The host runtime: a device is a core and an arena of shared memory that stand for one. It measures this machine's
// memory and never pretends to be a GPU.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_runtime.h"
#include "device/host_kernels.h"
#include "device/host_memory.h"

namespace linkgauge {

class HostRuntime final : public DeviceRuntime {
 public:
  // `devices`: ordinals below `host_devices`; empty: all. host_devices 0: as many as cores, at most 4. There may be
  // more devices than cores; they then share cores in turn.
  explicit HostRuntime(const RuntimeRequest& request);

  RuntimeKind kind() const override { return RuntimeKind::kHost; }
  std::string version() const override;
  int count() const override { return static_cast<int>(devices_.size()); }
  DeviceInfo describe(int device) const override;
  MemoryInfo memory(int device) const override;
  void bind_thread(int device) override;
  std::string peer_access(int device, int peer) override;

  void* allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) override;
  void deallocate(void* memory) noexcept override { memory_.deallocate(memory); }
  bool can_share(MemoryKind kind) const override;
  SharedHandle share(void* memory) override { return memory_.share(memory); }
  void* open_shared(int device, const SharedHandle& handle) override;
  void close_shared(void* memory) noexcept override { memory_.close_shared(memory); }

  StreamHandle create_stream(int device) override;
  // A stream is a thread: few of them where devices are many, so that their number is a multiple of the devices'.
  std::size_t most_copy_streams(int device) const override;
  void destroy_stream(StreamHandle stream) noexcept override;
  void synchronize(StreamHandle stream) override;
  bool done(StreamHandle stream) override;
  void copy_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                  StreamHandle stream) override;

  EventHandle create_event(int device) override;
  void destroy_event(EventHandle event) noexcept override;
  void record(EventHandle event, StreamHandle stream) override;
  void wait(StreamHandle stream, EventHandle event) override;
  void synchronize_event(EventHandle event) override;
  std::int64_t elapsed_ns(EventHandle start, EventHandle stop) override;

  KernelHandle kernel(int device, std::string_view kernel_name) override;
  void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) override;
  void copy_now(void* target, int target_device, const void* source, int source_device, std::size_t bytes) override;

 private:
  struct Device {
    int ordinal;
    int core;
    int numa_node;
  };
  const Device& at(int device) const;

  std::vector<Device> devices_;
  int total_ = 0;  // of which devices_ are those to use
  HostMemory memory_;
  std::mutex kernels_mutex_;
  std::map<std::string, HostKernel, std::less<>> kernels_;  // handles point at its values, which stay
};

}  // namespace linkgauge
