// Another runtime's every call: for those that change some of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "device/device_runtime.h"
#include "device/linked_kernels.h"

namespace linkgauge {

class ForwardingRuntime : public DeviceRuntime {
 public:
  explicit ForwardingRuntime(DeviceRuntime& real) : real_(real) {}
  DeviceRuntime& real() const { return real_; }

  RuntimeKind kind() const override { return real_.kind(); }
  std::string version() const override { return real_.version(); }
  int count() const override { return real_.count(); }
  DeviceInfo describe(int device) const override { return real_.describe(device); }
  MemoryInfo memory(int device) const override { return real_.memory(device); }
  void bind_thread(int device) override { real_.bind_thread(device); }
  std::string peer_access(int device, int peer) override { return real_.peer_access(device, peer); }
  void* allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) override {
    return real_.allocate(device, kind, bytes, options);
  }
  void deallocate(void* memory) noexcept override { real_.deallocate(memory); }
  std::string why_not_managed(int device, ManagedUse use) const override { return real_.why_not_managed(device, use); }
  bool managed_migrates(int device) const override { return real_.managed_migrates(device); }
  std::string why_not_pageable(int device) const override { return real_.why_not_pageable(device); }
  bool pageable_migrates(int device) const override { return real_.pageable_migrates(device); }
  void advise_managed(void* memory, std::size_t bytes, int device, ManagedUse use) override {
    real_.advise_managed(memory, bytes, device, use);
  }
  void prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) override {
    real_.prefetch_managed(memory, bytes, to_device, stream);
  }
  bool can_share(MemoryKind kind) const override { return real_.can_share(kind); }
  SharedHandle share(void* memory) override { return real_.share(memory); }
  void* open_shared(int device, const SharedHandle& handle) override { return real_.open_shared(device, handle); }
  void close_shared(void* memory) noexcept override { real_.close_shared(memory); }
  StreamHandle create_stream(int device) override { return real_.create_stream(device); }
  std::string why_no_stream_priorities() const override { return real_.why_no_stream_priorities(); }
  StreamHandle create_high_priority_stream(int device) override { return real_.create_high_priority_stream(device); }
  std::size_t most_copy_streams(int device) const override { return real_.most_copy_streams(device); }
  void destroy_stream(StreamHandle stream) noexcept override { real_.destroy_stream(stream); }
  void synchronize(StreamHandle stream) override { real_.synchronize(stream); }
  bool done(StreamHandle stream) override { return real_.done(stream); }
  void copy_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                  StreamHandle stream) override {
    real_.copy_async(target, target_device, source, source_device, bytes, stream);
  }
  EventHandle create_event(int device) override { return real_.create_event(device); }
  void destroy_event(EventHandle event) noexcept override { real_.destroy_event(event); }
  void record(EventHandle event, StreamHandle stream) override { real_.record(event, stream); }
  void wait(StreamHandle stream, EventHandle event) override { real_.wait(stream, event); }
  void synchronize_event(EventHandle event) override { real_.synchronize_event(event); }
  std::int64_t elapsed_ns(EventHandle start, EventHandle stop) override { return real_.elapsed_ns(start, stop); }
  std::string why_no_kernels() const override { return real_.why_no_kernels(); }
  KernelHandle kernel(int device, std::string_view kernel_name) override { return real_.kernel(device, kernel_name); }
  void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) override {
    real_.launch(kernel, shape, arguments, stream);
  }
  std::unique_ptr<LinkedKernels> link_kernels(int device, const LinkedCode& code) override {
    return real_.link_kernels(device, code);
  }
  std::string why_no_graphs() const override { return real_.why_no_graphs(); }
  void begin_capture(StreamHandle stream) override { real_.begin_capture(stream); }
  GraphHandle end_capture(int device, StreamHandle stream) override { return real_.end_capture(device, stream); }
  void launch_graph(GraphHandle graph, StreamHandle stream) override { real_.launch_graph(graph, stream); }
  void destroy_graph(GraphHandle graph) noexcept override { real_.destroy_graph(graph); }
  void copy_now(void* target, int target_device, const void* source, int source_device, std::size_t bytes) override {
    real_.copy_now(target, target_device, source, source_device, bytes);
  }

 private:
  DeviceRuntime& real_;
};

}  // namespace linkgauge
