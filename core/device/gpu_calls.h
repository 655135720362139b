// What the runtimes of both vendors do alike, written once over each vendor's table of symbols.
//
// `Vendor` is a struct of what differs: `Api`, the table; the vendor's types and constants; and under common names the
// functions of LINKGAUGE_GPU_CALLS, each a member of it (cuda_calls.h, hip_calls.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/symbols.h"
#include "device/gpu_runtime.h"

namespace linkgauge {

// OF(role, CUDA's function, HIP's function)
#define LINKGAUGE_GPU_CALLS(OF)                                                          \
  OF(device_count, cuDeviceGetCount, hipGetDeviceCount)                                  \
  OF(pci_address, cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)                             \
  OF(device_name, cuDeviceGetName, hipDeviceGetName)                                     \
  OF(total_memory, cuDeviceTotalMem_v2, hipDeviceTotalMem)                               \
  OF(device_attribute, cuDeviceGetAttribute, hipDeviceGetAttribute)                      \
  OF(can_access_peer, cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)                     \
  OF(memory_info, cuMemGetInfo_v2, hipMemGetInfo)                                        \
  OF(allocate, cuMemAlloc_v2, hipMalloc)                                                 \
  OF(free, cuMemFree_v2, hipFree)                                                        \
  OF(allocate_pinned, cuMemHostAlloc, hipHostMalloc)                                     \
  OF(free_pinned, cuMemFreeHost, hipHostFree)                                            \
  OF(allocate_managed, cuMemAllocManaged, hipMallocManaged)                              \
  OF(register_host, cuMemHostRegister_v2, hipHostRegister)                               \
  OF(unregister_host, cuMemHostUnregister, hipHostUnregister)                            \
  OF(seen_from_device, cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer)            \
  OF(address_range, cuMemGetAddressRange_v2, hipMemGetAddressRange)                      \
  OF(share, cuIpcGetMemHandle, hipIpcGetMemHandle)                                       \
  OF(close_shared, cuIpcCloseMemHandle, hipIpcCloseMemHandle)                            \
  OF(create_stream, cuStreamCreate, hipStreamCreateWithFlags)                            \
  OF(stream_priorities, cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange)    \
  OF(create_stream_of_priority, cuStreamCreateWithPriority, hipStreamCreateWithPriority) \
  OF(destroy_stream, cuStreamDestroy_v2, hipStreamDestroy)                               \
  OF(synchronize_stream, cuStreamSynchronize, hipStreamSynchronize)                      \
  OF(query_stream, cuStreamQuery, hipStreamQuery)                                        \
  OF(begin_capture, cuStreamBeginCapture_v2, hipStreamBeginCapture)                      \
  OF(end_capture, cuStreamEndCapture, hipStreamEndCapture)                               \
  OF(instantiate_graph, cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)       \
  OF(launch_graph, cuGraphLaunch, hipGraphLaunch)                                        \
  OF(destroy_ready_graph, cuGraphExecDestroy, hipGraphExecDestroy)                       \
  OF(destroy_graph, cuGraphDestroy, hipGraphDestroy)                                     \
  OF(create_event, cuEventCreate, hipEventCreateWithFlags)                               \
  OF(destroy_event, cuEventDestroy_v2, hipEventDestroy)                                  \
  OF(record_event, cuEventRecord, hipEventRecord)                                        \
  OF(wait_event, cuStreamWaitEvent, hipStreamWaitEvent)                                  \
  OF(synchronize_event, cuEventSynchronize, hipEventSynchronize)                         \
  OF(elapsed_time, cuEventElapsedTime, hipEventElapsedTime)                              \
  OF(load_module, cuModuleLoadData, hipModuleLoadData)                                   \
  OF(unload_module, cuModuleUnload, hipModuleUnload)                                     \
  OF(launch_kernel, cuLaunchKernel, hipModuleLaunchKernel)

template <typename Vendor>
class GpuCalls : public GpuRuntime {
 public:
  RuntimeKind kind() const final { return Vendor::kKind; }
  MemoryInfo memory(int device) const final {
    require(device);
    const CurrentDevice current(*this, device);
    return memory_here();
  }
  std::string why_not_pageable(int device) const final {
    require(device);
    if (attribute(Vendor::kPageableMemoryAccess, native(device)) != 0) return "";
    return std::string("kernels of this device cannot reach pageable memory (") + Vendor::kPageableMemoryAccessName +
           " is 0); use pinned or managed memory";
  }
  // Where it is reached through the host's own page tables (GH200, MI300A), it stays where it is.
  bool pageable_migrates(int device) const final {
    require(device);
    return attribute(Vendor::kPageableUsesHostPageTables, native(device)) == 0;
  }
  void advise_managed(void* memory, std::size_t bytes, int device, ManagedUse use) final {
    require(device);
    const CurrentDevice current(*this, device);
    switch (use) {
      case ManagedUse::kDefault:
      case ManagedUse::kMigrate:
      case ManagedUse::kPrefetch:
        break;
      case ManagedUse::kZeroCopy:
        advise_zero_copy(memory, bytes, device);
        break;
      case ManagedUse::kPreferredDevice:
        advise(memory, bytes, Vendor::kPreferredLocation, device);
        break;
      case ManagedUse::kPreferredHost:
        advise(memory, bytes, Vendor::kPreferredLocation, -1);
        break;
      case ManagedUse::kAccessedBy:
        advise(memory, bytes, Vendor::kAccessedBy, device);
        break;
      case ManagedUse::kReadMostly:
        advise(memory, bytes, Vendor::kReadMostly, device);
        break;
    }
  }
  StreamHandle create_stream(int device) final {
    require(device);
    const CurrentDevice current(*this, device);
    StreamHandle stream = nullptr;
    run(Vendor::create_stream, &stream, Vendor::kStreamFlags);
    return stream;
  }
  std::string why_no_stream_priorities() const final {
    const std::string missing = first_missing(Vendor::create_stream_of_priority, Vendor::stream_priorities);
    return missing.empty()
               ? ""
               : "this driver of " + std::string(name()) + " has no priorities of streams: it lacks " + missing;
  }
  StreamHandle create_high_priority_stream(int device) final {
    require(device);
    const CurrentDevice current(*this, device);
    int least = 0, greatest = 0;
    run(Vendor::stream_priorities, &least, &greatest);
    StreamHandle stream = nullptr;
    run(Vendor::create_stream_of_priority, &stream, Vendor::kStreamFlags, greatest);
    return stream;
  }
  // The vendors' own call returns at once, with work under way.
  void destroy_stream(StreamHandle stream) noexcept final {
    try {
      synchronize(stream);
    } catch (const Error&) {
      // The device is lost, and what was queued there.
    }
    (void)call(Vendor::destroy_stream, stream);
  }
  void synchronize(StreamHandle stream) final { run(Vendor::synchronize_stream, stream); }
  bool done(StreamHandle stream) final {
    const Result result = call(Vendor::query_stream, stream);
    if (result == Vendor::kNotReady) return false;
    check(result, (api_.*Vendor::query_stream).name);
    return true;
  }

  std::string why_no_graphs() const final {
    const std::string missing = first_missing(Vendor::begin_capture, Vendor::end_capture, Vendor::instantiate_graph,
                                              Vendor::launch_graph, Vendor::destroy_ready_graph, Vendor::destroy_graph);
    return missing.empty() ? "" : "this driver of " + std::string(name()) + " has no graphs: it lacks " + missing;
  }
  void begin_capture(StreamHandle stream) final { run(Vendor::begin_capture, stream, Vendor::kCaptureMode); }
  GraphHandle end_capture(int device, StreamHandle stream) final {
    const CurrentDevice current(*this, device);
    void* graph = nullptr;
    run(Vendor::end_capture, stream, &graph);
    GraphHandle ready = nullptr;
    const Result result = call(Vendor::instantiate_graph, &ready, graph, 0ULL);
    (void)call(Vendor::destroy_graph, graph);
    check(result, (api_.*Vendor::instantiate_graph).name);
    return ready;
  }
  void launch_graph(GraphHandle graph, StreamHandle stream) final { run(Vendor::launch_graph, graph, stream); }
  void destroy_graph(GraphHandle graph) noexcept final { (void)call(Vendor::destroy_ready_graph, graph); }

  EventHandle create_event(int device) final {
    require(device);
    const CurrentDevice current(*this, device);
    EventHandle event = nullptr;
    run(Vendor::create_event, &event, Vendor::kEventFlags);
    return event;
  }
  void destroy_event(EventHandle event) noexcept final { (void)call(Vendor::destroy_event, event); }
  void record(EventHandle event, StreamHandle stream) final { run(Vendor::record_event, event, stream); }
  void wait(StreamHandle stream, EventHandle event) final { run(Vendor::wait_event, stream, event, 0U); }
  void synchronize_event(EventHandle event) final { run(Vendor::synchronize_event, event); }
  std::int64_t elapsed_ns(EventHandle start, EventHandle stop) final {
    float milliseconds = 0;
    run(Vendor::elapsed_time, &milliseconds, start, stop);
    // In a float: beyond 16 s the step is 1 us or more, which is still below 1e-7 of the time.
    return static_cast<std::int64_t>(std::llround(static_cast<double>(milliseconds) * 1e6));
  }
  void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) final {
    run(Vendor::launch_kernel, kernel, shape.blocks, 1U, 1U, shape.threads, 1U, 1U, shape.shared_bytes, stream,
        arguments, static_cast<void**>(nullptr));
  }
  void* load_module(const std::string& image) final {
    void* module = nullptr;
    run(Vendor::load_module, &module, image.data());
    return module;
  }
  void unload_module(void* module) noexcept final { (void)call(Vendor::unload_module, module); }

 protected:
  using Api = typename Vendor::Api;
  using Result = typename Vendor::Result;
  using Address = typename Vendor::Address;
  using State = typename Vendor::State;
  struct Device {
    explicit Device(GpuIdentity which) : identity(std::move(which)) {}
    GpuIdentity identity;
    std::atomic<State> state{};  // of this process's use of it; nothing yet: State{}
  };

  using GpuRuntime::GpuRuntime;

  std::vector<GpuIdentity> enumerate() const final {
    int count = 0;
    run(Vendor::device_count, &count);
    std::vector<GpuIdentity> found;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      const int native = native_of(ordinal);
      std::array<char, 64> text{};
      run(Vendor::pci_address, text.data(), static_cast<int>(text.size()), native);
      std::string address = text.data();
      std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return std::tolower(c); });
      found.push_back({native, std::move(address)});
    }
    // CUDA's own order puts the fastest first unless CUDA_DEVICE_ORDER says otherwise.
    std::stable_sort(found.begin(), found.end(),
                     [](const GpuIdentity& a, const GpuIdentity& b) { return a.pci_address < b.pci_address; });
    return found;
  }
  void select(std::vector<GpuIdentity> devices) final {
    devices_.clear();
    for (GpuIdentity& identity : devices) devices_.push_back(std::make_unique<Device>(std::move(identity)));
  }
  bool in_use(int device) const final { return entry(device).state.load(std::memory_order_acquire) != State{}; }
  bool can_access_peer(int device, int peer) const final {
    int possible = 0;
    run(Vendor::can_access_peer, &possible, native(device), native(peer));
    return possible != 0;
  }

  MemoryInfo memory_here() const final {
    MemoryInfo info;
    run(Vendor::memory_info, &info.free_bytes, &info.total_bytes);
    return info;
  }
  void* allocate_device(std::size_t bytes) final {
    Address memory{};
    run_for(bytes, Vendor::allocate, &memory, bytes);
    return Vendor::pointer(memory);
  }
  void free_device(void* memory) noexcept final { (void)call(Vendor::free, Vendor::address(memory)); }
  void* allocate_pinned(std::size_t bytes, bool write_combined) final {
    void* memory = nullptr;
    const unsigned flags = Vendor::kPinnedFlags | (write_combined ? Vendor::kWriteCombinedFlag : 0U);
    run_for(bytes, Vendor::allocate_pinned, &memory, bytes, flags);
    return memory;
  }
  void free_pinned(void* memory) noexcept final { (void)call(Vendor::free_pinned, memory); }
  void* allocate_managed(std::size_t bytes) override {
    Address memory{};
    run_for(bytes, Vendor::allocate_managed, &memory, bytes, Vendor::kManagedFlags);
    return Vendor::pointer(memory);
  }
  void* allocate_fabric(int /*device*/, std::size_t /*bytes*/) override {
    throw Unsupported(std::string(to_string(Vendor::kKind)) + " devices have no fabric handles; leave --handles out");
  }
  void register_host(void* memory, std::size_t bytes) final {
    run_for(bytes, Vendor::register_host, memory, bytes, Vendor::kRegisterFlags);
    Address seen{};
    const Result result = call(Vendor::seen_from_device, &seen, memory, 0U);
    if (result == Vendor::kSuccess && Vendor::pointer(seen) == memory) return;
    unregister_host(memory);
    check(result, (api_.*Vendor::seen_from_device).name);
    throw Unsupported("registered host memory has another address on this device, so it cannot be placed by NUMA node");
  }
  void unregister_host(void* memory) noexcept final { (void)call(Vendor::unregister_host, memory); }
  AddressRange address_range(const void* memory) const final {
    Address base{};
    AddressRange range;
    run(Vendor::address_range, &base, &range.bytes, Vendor::address(memory));
    range.base = Vendor::pointer(base);
    return range;
  }
  IpcBytes share_base(void* base) const final {
    typename Vendor::IpcHandle handle{};
    run(Vendor::share, &handle, Vendor::address(base));
    return {handle.reserved, sizeof(handle.reserved)};
  }
  void close_base(void* base) noexcept final { (void)call(Vendor::close_shared, Vendor::address(base)); }

  // The vendor's number of what its own order counts.
  virtual int native_of(int ordinal) const { return ordinal; }
  virtual int current_device() const = 0;                                            // index, or -1
  virtual void advise(void* memory, std::size_t bytes, int advice, int device) = 0;  // device -1: of the host
  virtual void advise_zero_copy(void* /*memory*/, std::size_t /*bytes*/, int /*device*/) {}

  template <typename Function, typename... Arguments>
  Result call(Function Api::*role, Arguments... arguments) const {
    return (api_.*role)(arguments...);
  }
  template <typename Function, typename... Arguments>
  void run(Function Api::*role, Arguments... arguments) const {
    run(api_.*role, arguments...);
  }
  template <typename Signature, typename... Arguments>
  void run(const Symbol<Signature>& function, Arguments... arguments) const {
    check(function(arguments...), function.name);
  }
  // Of `bytes` of memory.
  template <typename Function, typename... Arguments>
  void run_for(std::size_t bytes, Function Api::*role, Arguments... arguments) const {
    check_memory(call(role, arguments...), (api_.*role).name, bytes);
  }

  void check(Result result, const char* name, const std::string& detail = {}) const {
    if (result == Vendor::kSuccess) return;
    std::string text = Vendor::error_text(api_, result);
    if (!detail.empty()) text += text.empty() ? detail : "; " + detail;
    throw RuntimeCallError(name, Vendor::error_name(api_, result), result, current_device(), text);
  }
  void check_memory(Result result, const char* name, std::size_t bytes) const {
    if (result != Vendor::kOutOfMemory) {
      check(result, name, std::to_string(bytes) + " bytes were requested");
      return;
    }
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    std::string seen;
    if (call(Vendor::memory_info, &free_bytes, &total_bytes) == Vendor::kSuccess)
      seen = "; " + std::to_string(free_bytes) + " of " + std::to_string(total_bytes) + " are free there";
    throw MemoryError(std::string(name) + " of " + std::to_string(bytes) + " bytes failed with " +
                      Vendor::error_name(api_, result) + " (" + std::to_string(result) + ") on device " +
                      std::to_string(current_device()) + seen);
  }

  // What every vendor tells of a device in the same words.
  DeviceInfo facts_of(int device) const {
    const int own = native(device);
    DeviceInfo info;
    info.kind = Vendor::kKind;
    info.pci_address = entry(device).identity.pci_address;
    std::array<char, 256> text{};
    run(Vendor::device_name, text.data(), static_cast<int>(text.size()), own);
    info.name = text.data();
    run(Vendor::total_memory, &info.memory_bytes, own);
    info.multiprocessors = attribute(Vendor::kMultiprocessorCount, own);
    info.last_level_cache_bytes = static_cast<std::size_t>(attribute(Vendor::kL2CacheBytes, own));
    for (const auto& [what, which] : Vendor::kTold) info.attributes[what] = std::to_string(attribute(which, own));
    return info;
  }

  int attribute(int which, int native_device) const {
    int value = 0;
    return call(Vendor::device_attribute, &value, which, native_device) == Vendor::kSuccess ? value : 0;
  }
  Device& entry(int device) const { return *devices_[static_cast<std::size_t>(device)]; }
  int native(int device) const { return entry(device).identity.native; }

  Api api_;
  std::vector<std::unique_ptr<Device>> devices_;

 private:
  template <typename... Functions>
  std::string first_missing(Functions Api::*... roles) const {
    const char* missing = "";
    (void)((api_.*roles != nullptr || (missing = (api_.*roles).name, false)) && ...);
    return missing;
  }
};

}  // namespace linkgauge
