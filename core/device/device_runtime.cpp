#include "device/device_runtime.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "device/linked_kernels.h"
#include "device/runtimes.h"

namespace linkgauge {

unsigned DeviceRuntime::multiprocessors(int device) const {
  return static_cast<unsigned>(std::max(1, describe(device).multiprocessors));
}

std::string DeviceRuntime::why_not_managed(int /*device*/, ManagedUse /*use*/) const {
  return std::string(name()) + " devices have no managed memory";
}
bool DeviceRuntime::managed_migrates(int /*device*/) const { return false; }
void DeviceRuntime::advise_managed(void* /*memory*/, std::size_t /*bytes*/, int device, ManagedUse use) {
  throw Unsupported(why_not_managed(device, use));
}
void DeviceRuntime::prefetch_managed(void* /*memory*/, std::size_t /*bytes*/, int to_device, StreamHandle /*stream*/) {
  throw Unsupported(why_not_managed(to_device, ManagedUse::kPrefetch));
}

std::unique_ptr<LinkedKernels> DeviceRuntime::link_kernels(int /*device*/, const LinkedCode& code) {
  throw Unsupported(std::string(name()) + " devices have no kernels that are linked with " + code.made_by);
}

std::string DeviceRuntime::why_no_stream_priorities() const {
  return "streams of " + std::string(name()) + " devices have no priorities";
}
StreamHandle DeviceRuntime::create_high_priority_stream(int) { throw Unsupported(why_no_stream_priorities()); }
void DeviceRuntime::begin_capture(StreamHandle) { throw Unsupported(why_no_graphs()); }
GraphHandle DeviceRuntime::end_capture(int, StreamHandle) { throw Unsupported(why_no_graphs()); }
void DeviceRuntime::launch_graph(GraphHandle, StreamHandle) { throw Unsupported(why_no_graphs()); }

Buffer::Buffer(DeviceRuntime& runtime, int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options)
    : Buffer(runtime.allocate(device, kind, bytes, options), device, kind, bytes,
             [&runtime](void* memory) { runtime.deallocate(memory); }) {}
Buffer::Buffer(void* data, int device, MemoryKind kind, std::size_t bytes, std::function<void(void*)> give_back)
    : data_(data, std::move(give_back)), bytes_(bytes), kind_(kind), device_(device) {}

void Stream::end() noexcept {
  try {
    if (handle_ != nullptr) synchronize();
  } catch (const Error&) {  // the device is lost, and what ran on it
  }
}

OtherDevice::OtherDevice(DeviceRuntime& runtime, int device, int own)
    : runtime_(device == own ? nullptr : &runtime), own_(own) {
  if (runtime_ != nullptr) runtime_->bind_thread(device);
}

OtherDevice::~OtherDevice() {
  if (runtime_ == nullptr) return;
  try {
    runtime_->bind_thread(own_);
  } catch (const Error&) {
    // It was current before; what is wrong with it now, the next call on it says.
  }
}

std::shared_ptr<DeviceRuntime> open_runtime(const RuntimeRequest& request) {
  switch (from_word<RuntimeKind>(request.which)) {
    case RuntimeKind::kHost:
      return open_host_runtime(request);
    case RuntimeKind::kCuda:
      return open_cuda_runtime(request);
    case RuntimeKind::kHip:
      return open_hip_runtime(request);
    case RuntimeKind::kSycl:
      return open_sycl_runtime(request);
  }
  return nullptr;
}

}  // namespace linkgauge
