#include "device/host_runtime.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/errors.h"
#include "base/words.h"
#include "device/host_cpu.h"
#include "device/host_stream.h"
#include "device/runtimes.h"

namespace linkgauge {
namespace {

constexpr int kMostDevices = 1024;
constexpr int kDevicesByDefault = 4;
// Of all devices together, and of one: as many hardware queues as CUDA gives a device by itself.
constexpr int kMostCopyStreams = 256;
constexpr int kMostCopyStreamsOfDevice = 8;
constexpr int kLeastCopyStreamsOfDevice = 2;

HostStream& stream_of(StreamHandle stream) { return *static_cast<HostStream*>(stream); }
HostEvent& event_of(EventHandle event) { return *static_cast<HostEvent*>(event); }

}  // namespace

HostRuntime::HostRuntime(const RuntimeRequest& request) {
  const std::vector<int> cores = usable_cores();
  const int core_count = static_cast<int>(cores.size());
  const int total = request.host_devices > 0 ? request.host_devices : std::min(kDevicesByDefault, core_count);
  if (request.host_devices < 0 || total > kMostDevices) {
    throw CallerError("host:" + std::to_string(request.host_devices) +
                      " is not a number of host devices, expected 1 to " + std::to_string(kMostDevices));
  }
  total_ = total;
  std::vector<int> ordinals = request.devices;
  if (ordinals.empty()) {
    for (int ordinal = 0; ordinal < total; ++ordinal) ordinals.push_back(ordinal);
  }
  for (const int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= total) {
      throw CallerError("there is no host device " + std::to_string(ordinal) + ", expected 0 to " +
                        std::to_string(total - 1));
    }
    const int core = cores[static_cast<std::size_t>(ordinal % core_count)];
    devices_.push_back({ordinal, core, numa_node_of_core(core)});
  }
}

const HostRuntime::Device& HostRuntime::at(int device) const {
  if (device < 0 || device >= count()) {
    throw CallerError("there is no device " + std::to_string(device) + ", expected 0 to " +
                      std::to_string(count() - 1));
  }
  return devices_[static_cast<std::size_t>(device)];
}

std::string HostRuntime::version() const {
  utsname names{};
  if (uname(&names) != 0) return std::string(name());
  return std::string(names.sysname) + " " + names.release;
}

DeviceInfo HostRuntime::describe(int device) const {
  const Device& mine = at(device);
  DeviceInfo info;
  info.ordinal = mine.ordinal;
  info.kind = kind();
  info.name = processor_name();
  info.uuid = "host-device-" + std::to_string(mine.ordinal);
  info.numa_node = mine.numa_node;
  info.architecture = machine_architecture();
  info.multiprocessors = 1;
  info.memory_bytes = memory_total_bytes();
  info.last_level_cache_bytes = last_level_cache_bytes_of(mine.core);
  const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(mine.core);
  info.attributes["core"] = std::to_string(mine.core);
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) info.attributes[key] = value;
  };
  add("package", first_line(folder + "/topology/physical_package_id"));
  add("hardware_threads", first_line(folder + "/topology/thread_siblings_list"));
  add("max_frequency_khz", first_line(folder + "/cpufreq/cpuinfo_max_freq"));
  add("governor", first_line(folder + "/cpufreq/scaling_governor"));
  add("transparent_hugepage", first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  return info;
}

MemoryInfo HostRuntime::memory(int device) const {
  at(device);
  MemoryInfo info = memory_now();
  info.free_bytes = memory_.shareable_bytes(info.free_bytes);
  return info;
}

void HostRuntime::bind_thread(int device) {
  // A host device has no state in the calling thread; which core a rank runs on is the launch's choice (--bind), and
  // its streams' threads inherit that.
  at(device);
}

std::string HostRuntime::peer_access(int device, int peer) {
  at(device);
  at(peer);
  return {};
}

void* HostRuntime::allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) {
  const Device& mine = at(device);
  if (kind == MemoryKind::kManaged) throw Unsupported("host devices have no managed memory");
  if (options.write_combined) throw Unsupported("host devices have no write-combined memory");
  if (options.fabric_handle) throw Unsupported("host devices have no fabric handles; leave --handles out");
  const std::vector<int> nodes = numa_nodes();
  const bool asked = options.numa_node >= 0;
  if (asked && std::find(nodes.begin(), nodes.end(), options.numa_node) == nodes.end()) {
    throw Unsupported("there is no memory on NUMA node " + std::to_string(options.numa_node) +
                      " here, nodes with memory: " + listed(nodes));
  }
  // One node: nowhere else to go, and containers often refuse mbind.
  const int node = nodes.size() == 1 ? -1 : asked ? options.numa_node : mine.numa_node;
  return memory_.allocate(kind, bytes, node, asked, options.huge_pages);
}

bool HostRuntime::can_share(MemoryKind kind) const {
  return kind == MemoryKind::kDevice || kind == MemoryKind::kPinned;
}

void* HostRuntime::open_shared(int device, const SharedHandle& handle) {
  at(device);
  return memory_.open_shared(handle);
}

StreamHandle HostRuntime::create_stream(int device) {
  at(device);
  return new HostStream();
}

std::size_t HostRuntime::most_copy_streams(int device) const {
  at(device);
  const int each = std::clamp(kMostCopyStreams / total_, kLeastCopyStreamsOfDevice, kMostCopyStreamsOfDevice);
  return static_cast<std::size_t>(each);
}

void HostRuntime::destroy_stream(StreamHandle stream) noexcept { delete static_cast<HostStream*>(stream); }
void HostRuntime::synchronize(StreamHandle stream) { stream_of(stream).synchronize(); }
bool HostRuntime::done(StreamHandle stream) { return stream_of(stream).done(); }

void HostRuntime::copy_async(void* target, int /*target_device*/, const void* source, int /*source_device*/,
                             std::size_t bytes, StreamHandle stream) {
  stream_of(stream).copy(target, source, bytes);
}

EventHandle HostRuntime::create_event(int device) {
  at(device);
  return new HostEvent();
}

void HostRuntime::destroy_event(EventHandle event) noexcept { event_of(event).let_go(); }
void HostRuntime::record(EventHandle event, StreamHandle stream) { stream_of(stream).record(event_of(event)); }
void HostRuntime::wait(StreamHandle stream, EventHandle event) { stream_of(stream).wait(event_of(event)); }
void HostRuntime::synchronize_event(EventHandle event) { event_of(event).wait_for(event_of(event).last_recording()); }

std::int64_t HostRuntime::elapsed_ns(EventHandle start, EventHandle stop) {
  for (const EventHandle event : {start, stop}) {
    const bool recorded = event_of(event).last_recording() != 0;
    if (recorded && event_of(event).complete()) continue;
    throw RuntimeCallError("elapsed_ns", recorded ? "EBUSY" : "EINVAL", recorded ? EBUSY : EINVAL, -1,
                           recorded ? "the event is not complete" : "the event was never recorded");
  }
  return event_of(stop).time_ns() - event_of(start).time_ns();
}

KernelHandle HostRuntime::kernel(int device, std::string_view kernel_name) {
  at(device);
  const std::lock_guard lock(kernels_mutex_);
  auto found = kernels_.find(kernel_name);
  if (found == kernels_.end()) found = kernels_.emplace(std::string(kernel_name), host_kernel(kernel_name)).first;
  return &found->second;
}

void HostRuntime::launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) {
  stream_of(stream).launch(*static_cast<const HostKernel*>(kernel), shape, arguments);
}

void HostRuntime::copy_now(void* target, int /*target_device*/, const void* source, int /*source_device*/,
                           std::size_t bytes) {
  std::memcpy(target, source, bytes);
}

std::shared_ptr<DeviceRuntime> open_host_runtime(const RuntimeRequest& request) {
  return std::make_shared<HostRuntime>(request);
}

}  // namespace linkgauge
