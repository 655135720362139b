// The HIP runtime. HIP's devices have their primary contexts by themselves; what is current is an
// ordinal.
#pragma once

#include <string>

#include "device/hip_calls.h"

namespace linkgauge {

class HipRuntime final : public GpuCalls<HipVendor> {
 public:
  // Throws Unsupported with the reason: no runtime, runtime too old, no device, no permission.
  explicit HipRuntime(const RuntimeRequest& request);
  ~HipRuntime() override { unload_kernels(); }

  std::string version() const override;
  std::uintptr_t enter(int device) const override;
  void leave(std::uintptr_t previous) const noexcept override;
  std::string why_not_managed(int device, ManagedUse use) const override;
  bool managed_migrates(int device) const override;
  void prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) override;
  KernelHandle find_kernel(void* module, const char* kernel_name, bool dynamic_shared) override;

 private:
  DeviceInfo describe_own(int device) const override;
  void* allocate_managed(std::size_t bytes) override;
  void* open_base(const IpcBytes& bytes) override;
  void enable_peer_access(int peer) override;
  void copy_here(void* target, const void* source, std::size_t bytes) override;
  void copy_here_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) override;
  void copy_peer_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                       StreamHandle stream) override;
  int current_device() const override;
  void advise(void* memory, std::size_t bytes, int advice, int device) override;
  std::string architecture(int native_device, const std::string& pci_address) const;

  std::string library_path_;
};

}  // namespace linkgauge
