// The SYCL runtime: GPUs of every backend that SYCL has here, else its CPUs, through DPCTL's C API. Copies only: it has
// no kernels of ours, and its memory stays in its process.
#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/device_runtime.h"
#include "device/sycl_api.h"

namespace linkgauge {

class SyclRuntime final : public DeviceRuntime {
 public:
  explicit SyclRuntime(const RuntimeRequest& request);
  ~SyclRuntime() override;

  RuntimeKind kind() const override { return RuntimeKind::kSycl; }
  std::string version() const override;
  int count() const override { return static_cast<int>(devices_.size()); }
  DeviceInfo describe(int device) const override { return at(device).info; }
  // SYCL does not tell what is free of a GPU's memory: what this process did not take of it.
  MemoryInfo memory(int device) const override;
  void bind_thread(int device) override { (void)at(device); }  // SYCL has no current device
  std::string peer_access(int device, int peer) override;

  void* allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) override;
  void deallocate(void* memory) noexcept override;
  std::string why_not_managed(int device, ManagedUse use) const override;
  void advise_managed(void*, std::size_t, int, ManagedUse) override {}  // kDefault alone is had: nothing to say
  bool can_share(MemoryKind) const override { return false; }
  SharedHandle share(void* memory) override;
  void* open_shared(int device, const SharedHandle& handle) override;
  void close_shared(void*) noexcept override {}

  StreamHandle create_stream(int device) override;
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

  std::string why_no_kernels() const override;
  KernelHandle kernel(int device, std::string_view kernel_name) override;
  void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) override;
  void copy_now(void* target, int target_device, const void* source, int source_device, std::size_t bytes) override;

 private:
  struct Device {
    sycl::Device handle = nullptr;
    sycl::Context context = nullptr;  // one for all devices of a platform
    sycl::Queue queue = nullptr;      // of allocations and of what is not timed
    DeviceInfo info;
  };
  struct Allocation {
    MemoryKind kind;
    int device;
    std::size_t bytes;
  };

  const Device& at(int device) const;
  void make_contexts();
  std::string why_no_usm(int device, int aspect, const char* name) const;  // "": it has
  sycl::Queue make_queue(const Device& device) const;
  void release() noexcept;
  void replace(sycl::Event& held, sycl::Event by) const noexcept;  // what was held is given back
  [[noreturn]] void fail(const char* call, int device, const std::string& detail = {}) const;
  template <typename Call>
  void waited(const char* name, int device, const Call& call) const;

  sycl::Library library_;
  const sycl::Api& api_;
  bool peer_access_allowed_;
  std::vector<Device> devices_;
  std::vector<sycl::Context> contexts_;

  mutable std::mutex memory_mutex_;
  std::unordered_map<void*, Allocation> allocations_;
  std::mutex peers_mutex_;
  std::set<std::pair<int, int>> peers_;  // (device, peer) whose access is enabled
};

}  // namespace linkgauge
