// A GPU runtime's kernels: compiled when the first of a device is asked for, all of them, and kept from process to
// process.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "device/gpu_driver.h"
#include "device/kernel_cache.h"

namespace linkgauge {

class GpuKernels {
 public:
  // The driver outlives it.
  GpuKernels(GpuDriver& driver, std::function<std::unique_ptr<KernelCompiler>()> open_compiler,
             const std::string& cache_folder);
  ~GpuKernels();
  GpuKernels(const GpuKernels&) = delete;
  GpuKernels& operator=(const GpuKernels&) = delete;

  // Throws Unsupported where the device's architecture has no such kernel.
  KernelHandle find(int device, const std::string& architecture, std::string_view name);

 private:
  struct Loaded {
    std::vector<void*> modules;
    std::map<std::string, KernelHandle, std::less<>> by_name;
  };
  Loaded load(int device, const std::string& architecture);
  void* load_image(const std::string& image, const std::string& kept_in,
                   const std::function<std::string()>& make_again);

  GpuDriver& driver_;
  std::function<std::unique_ptr<KernelCompiler>()> open_compiler_;
  KernelCache cache_;
  std::mutex mutex_;
  std::map<int, Loaded> loaded_;  // by device
};

}  // namespace linkgauge
