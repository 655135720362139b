// Where bytes live: one interface over CUDA (driver API), HIP, SYCL and the host.
//
// A runtime is found at run time. Devices are numbered by the runtime's own order of the devices that it was opened
// for (PCI order). Every call throws RuntimeCallError or MemoryError; none returns a code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/memory_kind.h"
#include "base/not_copied.h"
#include "base/runtime_kind.h"

namespace linkgauge {

struct LinkedCode;  // device/linked_kernels.h
class LinkedKernels;

struct DeviceInfo {
  int ordinal = -1;  // in the runtime's PCI order
  RuntimeKind kind = RuntimeKind::kHost;
  std::string name;
  std::string uuid;
  std::string serial;
  std::string pci_address;  // "0000:1b:00.0"; empty for host devices
  std::string vbios;
  int numa_node = -1;
  std::string architecture;  // "sm_90", "gfx90a", "x86_64"
  int multiprocessors = 0;   // a host device: 1, its core
  std::size_t memory_bytes = 0;
  std::size_t last_level_cache_bytes = 0;
  std::map<std::string, std::string> attributes;  // what else the runtime tells: clocks, bus width, ...
};

struct MemoryInfo {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};

// Opaque handles; the runtime that made one destroys it.
using StreamHandle = void*;
using EventHandle = void*;
using KernelHandle = void*;
using GraphHandle = void*;

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 1;
  unsigned shared_bytes = 0;
  bool operator==(const LaunchShape&) const = default;
  std::string grid() const { return std::to_string(blocks) + " x " + std::to_string(threads); }
};

// A buffer's name outside of its process. `bytes` is opaque to all but the runtime that made it.
struct SharedHandle {
  std::vector<std::byte> bytes;
};

class DeviceRuntime : NotCopied {
 public:
  virtual ~DeviceRuntime() = default;

  virtual RuntimeKind kind() const = 0;
  std::string_view name() const { return to_string(kind()); }
  virtual std::string version() const = 0;  // of runtime and driver, for run.json
  virtual int count() const = 0;
  virtual DeviceInfo describe(int device) const = 0;
  // What grids are made from: 1 where the runtime tells none.
  unsigned multiprocessors(int device) const;
  virtual MemoryInfo memory(int device) const = 0;

  // Makes `device` current in the calling thread. Each thread that calls the runtime must do so first.
  virtual void bind_thread(int device) = 0;

  // Whether kernels and copies of `device` may touch memory of `peer` directly, enabling it on the first call.
  // Empty: yes; else why not.
  virtual std::string peer_access(int device, int peer) = 0;

  virtual void* allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) = 0;
  virtual void deallocate(void* memory) noexcept = 0;

  // Managed memory. Why this use of it cannot be had on `device`, in one sentence, or "".
  virtual std::string why_not_managed(int device, ManagedUse use) const;
  // Whether its pages move to the processor that touches them.
  virtual bool managed_migrates(int device) const;
  // Gives the driver the advice that belongs to `use`, for memory of allocate(); synchronous.
  virtual void advise_managed(void* memory, std::size_t bytes, int device, ManagedUse use);
  // Queues the move of all pages to memory of `to_device`; -1: to host memory.
  virtual void prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream);

  // Pageable memory. Why kernels of `device` cannot reach it, in one sentence, or "".
  virtual std::string why_not_pageable(int /*device*/) const { return ""; }
  // Whether its pages move to the processor that touches them.
  virtual bool pageable_migrates(int /*device*/) const { return false; }

  // Share memory of allocate() with another process, and open what another process shared. Device memory always;
  // host kinds where can_share says so.
  virtual bool can_share(MemoryKind kind) const = 0;
  virtual SharedHandle share(void* memory) = 0;
  virtual void* open_shared(int device, const SharedHandle& handle) = 0;
  virtual void close_shared(void* memory) noexcept = 0;

  virtual StreamHandle create_stream(int device) = 0;
  // One of the highest priority that the device has: its kernels begin before those of other streams that wait.
  virtual std::string why_no_stream_priorities() const;
  virtual StreamHandle create_high_priority_stream(int device);
  // Streams that a rank's copies on `device` are best put into: where it has more messages under way, they share.
  virtual std::size_t most_copy_streams(int /*device*/) const { return std::numeric_limits<std::size_t>::max(); }
  // Returns when all that was queued is done, or can no longer be: what it touches may go.
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;
  virtual void synchronize(StreamHandle stream) = 0;  // returns when all that was queued is done
  virtual bool done(StreamHandle stream) = 0;         // never blocks

  // Queued; returns at once unless the runtime itself blocks (pageable memory). Device -1 means host memory, or what
  // open_shared gave: this process' own mapping, of which the driver finds by the address where it lies. This is the
  // runtime's copy engine (or what the runtime takes for it).
  virtual void copy_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                          StreamHandle stream) = 0;

  // Timing events. elapsed_ns is between two completed events of one device.
  virtual EventHandle create_event(int device) = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;  // what is queued later on stream waits for event
  virtual void synchronize_event(EventHandle event) = 0;
  virtual std::int64_t elapsed_ns(EventHandle start, EventHandle stop) = 0;

  // Why this runtime runs no kernels of ours, in one sentence, or "": kernel() and launch() then throw it.
  virtual std::string why_no_kernels() const { return ""; }
  // Kernels by name (core/kernels/kernels.h lists names and argument layouts). The first call for a device compiles or
  // finds all kernels of it, so that none is loaded while another waits. Arguments as for cuLaunchKernel: pointers to
  // each parameter.
  virtual KernelHandle kernel(int device, std::string_view kernel_name) = 0;
  virtual void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) = 0;
  // The same with the parameters' values, whose types are the kernel's own: nothing converts them.
  template <typename... Parameters>
  void launch_with(KernelHandle kernel, const LaunchShape& shape, StreamHandle stream, Parameters... parameters) {
    static_assert(((std::is_pointer_v<Parameters> || std::is_class_v<Parameters> || sizeof(Parameters) >= 4) && ...));
    void* arguments[] = {&parameters...};
    launch(kernel, shape, arguments, stream);
  }

  // Kernels that call a vendor's device library, loaded now; made once (some seconds), then kept as kernel()'s are.
  virtual std::unique_ptr<LinkedKernels> link_kernels(int device, const LinkedCode& code);

  // Graphs: what is queued on `stream` from begin_capture on is not done but kept, and launch_graph queues all of it at
  // once, any number of times. end_capture also ends a capture that failed, by throwing.
  virtual std::string why_no_graphs() const { return std::string(name()) + " devices have no graphs"; }
  virtual void begin_capture(StreamHandle stream);
  virtual GraphHandle end_capture(int device, StreamHandle stream);
  virtual void launch_graph(GraphHandle graph, StreamHandle stream);
  virtual void destroy_graph(GraphHandle) noexcept {}

  // Synchronous, for the untimed parts (verification, set-up); any memory kind on either side.
  virtual void copy_now(void* target, int target_device, const void* source, int source_device, std::size_t bytes) = 0;
};

// Memory that is given back when the buffer goes. Never outlives its runtime.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DeviceRuntime& runtime, int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options = {});
  // Memory that somebody else made, and takes back by `give_back`.
  Buffer(void* data, int device, MemoryKind kind, std::size_t bytes, std::function<void(void*)> give_back);

  void* data() const { return data_.get(); }
  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(data_.get()) + offset; }
  std::size_t size() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  int device() const { return device_; }  // the device that it was allocated for, also for host kinds
  // What copy_async wants: the device for device and managed memory, -1 for host kinds.
  int copy_device() const { return kind_ == MemoryKind::kDevice || kind_ == MemoryKind::kManaged ? device_ : -1; }

 private:
  std::unique_ptr<void, std::function<void(void*)>> data_;
  std::size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kDevice;
  int device_ = -1;
};

// A handle that its runtime destroys when it goes. Never outlives the runtime.
template <auto kDestroy>
class Owned {
 public:
  Owned() = default;
  Owned(DeviceRuntime& runtime, void* handle) : runtime_(&runtime), handle_(handle) {}
  Owned(Owned&& other) noexcept { *this = std::move(other); }
  Owned& operator=(Owned&& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) (runtime_->*kDestroy)(handle_);
  }

  void* handle() const { return handle_; }

 protected:
  DeviceRuntime* runtime_ = nullptr;
  void* handle_ = nullptr;
};

using Graph = Owned<&DeviceRuntime::destroy_graph>;

class Event : public Owned<&DeviceRuntime::destroy_event> {
 public:
  Event() = default;
  Event(DeviceRuntime& runtime, int device) : Owned(runtime, runtime.create_event(device)) {}
};

// Ends what is queued when it goes: before the memory that it touches.
class Stream : public Owned<&DeviceRuntime::destroy_stream> {
 public:
  Stream() = default;
  Stream(DeviceRuntime& runtime, int device) : Owned(runtime, runtime.create_stream(device)) {}
  static Stream of_high_priority(DeviceRuntime& runtime, int device) {
    return Stream(Owned(runtime, runtime.create_high_priority_stream(device)));
  }

  void synchronize() { runtime_->synchronize(handle_); }
  // What is queued ends, also by the loss of the device.
  void end() noexcept;

 private:
  explicit Stream(Owned made) : Owned(std::move(made)) {}
};

// What `body` queues on `stream`, as a graph. Where it throws, the capture ends all the same.
template <typename Body>
Graph captured(DeviceRuntime& runtime, int device, StreamHandle stream, const Body& body) {
  runtime.begin_capture(stream);
  try {
    body();
  } catch (...) {
    try {
      (void)Graph(runtime, runtime.end_capture(device, stream));
    } catch (const Error&) {  // the first failure is the one to tell of
    }
    throw;
  }
  return Graph(runtime, runtime.end_capture(device, stream));
}

// Makes a device current for a scope, where that is not the calling rank's own. The rank's own device is current
// outside of it: some vendors launch kernels and record events on streams of the current device only.
class OtherDevice : NotCopied {
 public:
  OtherDevice(DeviceRuntime& runtime, int device, int own);
  ~OtherDevice();

 private:
  DeviceRuntime* runtime_;  // nullptr: it is its own
  int own_;
};

// Which runtime to open: `which` is a name of RuntimeKind; `devices` the ordinals to use, empty for all; the
// host has as many as `host_devices` says.
struct RuntimeRequest {
  std::string which;
  std::vector<int> devices;
  int host_devices = 0;
  std::string kernel_cache;  // folder for compiled kernels; empty: the user's cache folder
  // Folders of Python packages (as in sys.path) in which wheels may have put NVRTC or SYCL; the system's are found
  // without.
  std::vector<std::string> library_folders;
  bool peer_access = true;  // GPUs: false keeps it off for the whole launch; the driver then stages
};

// Throws Unsupported with the reason: no driver, driver too old, no device, no permission.
std::shared_ptr<DeviceRuntime> open_runtime(const RuntimeRequest& request);

}  // namespace linkgauge
