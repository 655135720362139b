// Host devices that pass for devices with several copy kernels and grids to choose from: their events tell the times
// that a test plants.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "case_maker.h"
#include "forwarding_runtime.h"
#include "kernels/kernels.h"

namespace linkgauge {

class PlantedRuntime : public ForwardingRuntime {
 public:
  // Of a copy or an allreduce that is about to be launched by a thread of `device`: the time in ns that it will seem to
  // have taken.
  using Planted = std::function<double(int device, const LaunchShape& shape)>;

  PlantedRuntime(int count, Planted planted) : PlantedRuntime(host_devices(count), std::move(planted)) {}

  RuntimeKind kind() const override { return RuntimeKind::kSycl; }  // whose kernels nothing treats apart
  DeviceInfo describe(int device) const override {
    DeviceInfo info = real().describe(device);
    info.multiprocessors = 4;
    info.uuid = "planted " + std::to_string(number_) + " " + std::to_string(device);  // choices are kept by it
    return info;
  }
  void bind_thread(int device) override {
    bound() = device;
    ForwardingRuntime::bind_thread(device);
  }
  KernelHandle kernel(int device, std::string_view kernel_name) override {
    const bool copies = kernel_name.starts_with(kKernelCopy);
    const std::string_view played = copies                             ? kKernelCopy
                                    : kernel_name == kKernelBothWaysU8 ? kKernelBothWays
                                                                       : kernel_name;
    const KernelHandle found = real().kernel(device, played);
    if (copies || kernel_name.starts_with(kKernelBothWays) || kernel_name.starts_with(kKernelAllreduce)) {
      const std::lock_guard lock(mutex_);
      planted_kernels_[found] = true;
    }
    return found;
  }
  void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) override {
    bool is_planted = false;
    {
      const std::lock_guard lock(mutex_);
      is_planted = planted_kernels_.count(kernel) > 0;
    }
    if (is_planted) clock() += planted_(bound(), shape);
    ForwardingRuntime::launch(kernel, shape, arguments, stream);
  }
  void record(EventHandle event, StreamHandle stream) override {
    {
      const std::lock_guard lock(mutex_);
      times_[event] = clock();
    }
    ForwardingRuntime::record(event, stream);
  }
  std::int64_t elapsed_ns(EventHandle start, EventHandle stop) override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(times_.at(stop) - times_.at(start));
  }

 private:
  PlantedRuntime(std::shared_ptr<DeviceRuntime> host, Planted planted)
      : ForwardingRuntime(*host), host_(std::move(host)), planted_(std::move(planted)) {}

  // Of the calling thread, as a driver's current device; a rank's queues are its own.
  static int& bound() {
    thread_local int device = -1;
    return device;
  }
  static double& clock() {
    thread_local double ns = 0;
    return ns;
  }
  static int next_number() {
    static std::atomic<int> made{0};
    return ++made;
  }

  std::shared_ptr<DeviceRuntime> host_;
  Planted planted_;
  const int number_ = next_number();
  std::mutex mutex_;
  std::map<KernelHandle, bool> planted_kernels_;
  std::map<EventHandle, double> times_;
};

}  // namespace linkgauge
