// A GPU runtime's kernels: compiled when the first of a device is asked for, all of them, and kept from process to
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/not_copied.h"
#include "device/device_runtime.h"
#include "device/kernel_cache.h"
#include "device/kernel_compiler.h"

namespace linkgauge {

// A vendor's current device, and modules there.
class GpuModules {
 public:
  virtual ~GpuModules() = default;

  // Makes `device` current in this thread; returns what leave() needs to put back what was current before.
  virtual std::uintptr_t enter(int device) const = 0;
  virtual void leave(std::uintptr_t previous) const noexcept = 0;

  // (current): on the device that enter() made current.
  virtual void* load_module(const std::string& image) = 0;  // (current)
  virtual void unload_module(void* module) noexcept = 0;    // (current)
  // Looks the kernel up and loads its code now, so that no later launch has to. `dynamic_shared`: it is launched with
  // as much dynamic shared memory as a block may have.
  virtual KernelHandle find_kernel(void* module, const char* kernel_name, bool dynamic_shared) = 0;  // (current)
};

// Makes a device current for a scope and puts back what was.
class CurrentDevice : NotCopied {
 public:
  CurrentDevice(const GpuModules& driver, int device) : driver_(driver), previous_(driver.enter(device)) {}
  ~CurrentDevice() { driver_.leave(previous_); }

 private:
  const GpuModules& driver_;
  std::uintptr_t previous_;
};

class GpuKernels {
 public:
  GpuKernels(GpuModules& driver, std::function<std::unique_ptr<KernelCompiler>()> open_compiler,
             const std::string& cache_folder);
  // While the vendor's driver is still there.
  void unload() noexcept;

  // Throws Unsupported where the device's architecture has no such kernel.
  KernelHandle find(int device, const std::string& architecture, std::string_view name);
  // As DeviceRuntime::link_kernels.
  std::unique_ptr<LinkedKernels> link(int device, const std::string& architecture, const LinkedCode& code);

 private:
  struct Loaded {
    std::vector<void*> modules;
    std::map<std::string, KernelHandle, std::less<>> by_name;
  };
  Loaded load(int device, const std::string& architecture);
  void* load_image(const std::string& image, const std::string& kept_in,
                   const std::function<std::string()>& make_again);

  GpuModules& driver_;
  std::function<std::unique_ptr<KernelCompiler>()> open_compiler_;
  KernelCache cache_;
  std::mutex mutex_;
  std::map<int, Loaded> loaded_;  // by device
};

}  // namespace linkgauge
