// The CUDA runtime, over the driver API. Uses each device's primary context, which NCCL, UCX and MPI use too.
#pragma once

#include <mutex>

#include "device/cuda_calls.h"
#include "device/nvml_api.h"

namespace linkgauge {

class CudaRuntime final : public GpuCalls<CudaVendor> {
 public:
  // Throws Unsupported with the reason: no driver, driver too old, no device, no permission.
  explicit CudaRuntime(const RuntimeRequest& request);
  ~CudaRuntime() override;

  std::string version() const override;
  std::uintptr_t enter(int device) const override;
  void leave(std::uintptr_t previous) const noexcept override;
  std::string why_not_managed(int device, ManagedUse use) const override;
  bool managed_migrates(int device) const override;
  void prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) override;
  KernelHandle find_kernel(void* module, const char* kernel_name, bool dynamic_shared) override;

 private:
  DeviceInfo describe_own(int device) const override;
  // device/cuda_fabric.cpp
  void* allocate_fabric(int device, std::size_t bytes) override;
  void free_fabric(void* base, int device, std::size_t bytes) noexcept override;
  IpcBytes share_fabric(void* base) const override;
  void* open_fabric(int device, const IpcBytes& handle, std::size_t bytes) override;
  void let_reach(int device, void* base, std::size_t bytes) override;
  void* open_base(const IpcBytes& bytes) override;
  void enable_peer_access(int peer) override;
  void copy_here(void* target, const void* source, std::size_t bytes) override;
  void copy_here_async(void* target, const void* source, std::size_t bytes, StreamHandle stream) override;
  void copy_peer_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                       StreamHandle stream) override;
  int native_of(int ordinal) const override;
  int current_device() const override;
  void advise(void* memory, std::size_t bytes, int advice, int device) override;
  void advise_zero_copy(void* memory, std::size_t bytes, int device) override;
  cuda::Context context(int device) const;
  bool has_locations() const;  // of memory, as CUDA 12.2 brought them
  std::string why_no_fabric(int device) const;
  std::size_t whole_pieces(int device, std::size_t bytes) const;               // of memory of fabric handles
  void check_fabric(cuda::Result result, const char* call, int device) const;  // Unsupported where it is refused
  void* map_fabric(cuda::MemoryHandle handle, std::size_t bytes);

  nvml::Library nvml_;
  int supported_version_ = 0;          // 13000 for CUDA 13.0
  mutable std::mutex contexts_mutex_;  // while a context is made
};

}  // namespace linkgauge
