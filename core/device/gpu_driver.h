// One vendor's calls under common names, so that GpuRuntime is written once. Each throws RuntimeCallError with the
// vendor's own call and code; the allocating ones throw MemoryError when there is none left.
//
// Devices are indices into the list that select() was given. Calls marked (current) act on the device that enter()
// made current in this thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_runtime.h"
#include "device/linked_kernels.h"

namespace linkgauge {

struct GpuIdentity {
  int native = -1;  // the vendor's own ordinal
  std::string pci_address;
};

class GpuDriver {
 public:
  using IpcBytes = std::string;  // as the vendor's handle holds them
  struct AddressRange {
    void* base = nullptr;
    std::size_t bytes = 0;
  };

  virtual ~GpuDriver() = default;

  virtual RuntimeKind kind() const = 0;
  virtual std::string version() const = 0;
  virtual std::vector<GpuIdentity> enumerate() const = 0;  // all that the process may see, in PCI order
  virtual void select(std::vector<GpuIdentity> devices) = 0;
  virtual DeviceInfo describe(int device) const = 0;

  // Makes `device` current in this thread; returns what leave() needs to put back what was current before.
  virtual std::uintptr_t enter(int device) = 0;
  virtual void leave(std::uintptr_t previous) noexcept = 0;
  virtual MemoryInfo memory() const = 0;  // (current)

  virtual void* allocate_device(std::size_t bytes) = 0;                       // (current)
  virtual void free_device(void* memory) noexcept = 0;                        // device and managed memory
  virtual void* allocate_pinned(std::size_t bytes, bool write_combined) = 0;  // (current)
  virtual void free_pinned(void* memory) noexcept = 0;
  virtual void* allocate_managed(std::size_t bytes) = 0;  // (current)
  // As DeviceRuntime says it.
  virtual std::string why_not_managed(int device, ManagedUse use) const = 0;
  virtual bool managed_migrates(int device) const = 0;
  virtual std::string why_not_pageable(int device) const = 0;
  virtual bool pageable_migrates(int device) const = 0;
  virtual void advise_managed(void* memory, std::size_t bytes, int device, ManagedUse use) = 0;  // (current)
  virtual void prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) = 0;
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
  virtual IpcBytes share(void* base) const = 0;
  virtual void* open_shared(const IpcBytes& bytes) = 0;  // (current)
  virtual void close_shared(void* base) noexcept = 0;    // (current)

  // Whether this process uses the device already: whether its context is there.
  virtual bool in_use(int device) const = 0;
  virtual bool can_access_peer(int device, int peer) const = 0;
  virtual void enable_peer_access(int peer) = 0;  // (current); twice does no harm

  virtual StreamHandle create_stream() = 0;  // (current)
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;
  virtual void synchronize(StreamHandle stream) = 0;
  virtual bool done(StreamHandle stream) = 0;
  // "" or the call that the driver lacks for graphs.
  virtual std::string lacks_for_graphs() const = 0;
  virtual void begin_capture(StreamHandle stream) = 0;
  virtual GraphHandle end_capture(StreamHandle stream) = 0;  // (current)
  virtual void launch_graph(GraphHandle graph, StreamHandle stream) = 0;
  virtual void destroy_graph(GraphHandle graph) noexcept = 0;
  virtual EventHandle create_event() = 0;  // (current)
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  virtual void synchronize_event(EventHandle event) = 0;
  virtual float elapsed_ms(EventHandle start, EventHandle stop) = 0;

  virtual void copy(void* target, const void* source, std::size_t bytes) = 0;  // synchronous
  virtual void copy_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) = 0;
  virtual void copy_peer_async(void* target, int target_device, const void* source, int source_device,
                               std::size_t bytes, StreamHandle stream) = 0;

  virtual void* load_module(const std::string& image) = 0;  // (current)
  virtual void unload_module(void* module) noexcept = 0;    // (current)
  // Looks the kernel up and loads its code now, so that no later launch has to. `dynamic_shared`: it is launched with
  // as much dynamic shared memory as a block may have.
  virtual KernelHandle find_kernel(void* module, const char* kernel_name, bool dynamic_shared) = 0;  // (current)
  virtual void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) = 0;
};

// Makes a device current for a scope and puts back what was.
class CurrentDevice {
 public:
  CurrentDevice(GpuDriver& driver, int device) : driver_(driver), previous_(driver.enter(device)) {}
  ~CurrentDevice() { driver_.leave(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  GpuDriver& driver_;
  std::uintptr_t previous_;
};

// Compiles the kernels' text for one architecture.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  virtual std::string identity() const = 0;  // name and version; part of the cache's key
  // What is compiled for on a device of `architecture`: itself where the compiler knows it.
  virtual std::string target_for(const std::string& architecture) const { return architecture; }
  virtual std::vector<std::string> options(const std::string& target) const = 0;
  // Throws RuntimeCallError with the compiler's log.
  virtual std::string compile(const std::string& source, const std::string& target) = 0;
  // Compiles and links. Throws Unsupported with what is missing and what brings it, besides.
  virtual std::string compile_linked(const LinkedCode& code, const std::string& target) = 0;
};

}  // namespace linkgauge
