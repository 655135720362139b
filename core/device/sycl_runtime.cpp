#include "device/sycl_runtime.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>

#include "base/errors.h"
#include "device/host_cpu.h"
#include "device/host_placement.h"
#include "device/runtimes.h"
#include "device/sycl_devices.h"

namespace linkgauge {
namespace {

struct SyclStream {
  sycl::Queue queue;
  int device;
  sycl::Event last = nullptr;  // of what was queued; SYCL cannot ask a queue whether it is empty
};
struct SyclEvent {
  sycl::Event recorded = nullptr;
};

SyclStream& stream_of(StreamHandle stream) { return *static_cast<SyclStream*>(stream); }
SyclEvent& event_of(EventHandle event) { return *static_cast<SyclEvent*>(event); }

// SYCL's unified shared memory of a kind.
struct Usm {
  const char* name;
  int aspect;
  decltype(sycl::Api::DPCTLmalloc_device) sycl::Api::*allocate;
};
Usm usm_of(MemoryKind kind) {
  if (kind == MemoryKind::kPinned) return {"host", sycl::kUsmHost, &sycl::Api::DPCTLmalloc_host};
  if (kind == MemoryKind::kManaged) return {"shared", sycl::kUsmShared, &sycl::Api::DPCTLmalloc_shared};
  return {"device", sycl::kUsmDevice, &sycl::Api::DPCTLmalloc_device};
}

constexpr char kNotShared[] = "SYCL's memory cannot be shared between processes";

// What a queue's handler was told since it was last asked; which queue of the process it was, SYCL does not say.
std::atomic<int> asynchronous_error{0};
void take_asynchronous_error(int code) { asynchronous_error.store(code == 0 ? -1 : code); }

}  // namespace

SyclRuntime::SyclRuntime(const RuntimeRequest& request)
    : library_(request.library_folders), api_(library_.api()), peer_access_allowed_(request.peer_access) {
  try {
    for (sycl::Device device : sycl::find_devices(api_, request.devices)) {
      devices_.push_back({device, nullptr, nullptr, {}});
    }
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      devices_[i].info = sycl::describe(api_, devices_[i].handle);
      devices_[i].info.ordinal = request.devices.empty() ? static_cast<int>(i) : request.devices[i];
    }
    make_contexts();
  } catch (...) {
    release();
    throw;
  }
}

SyclRuntime::~SyclRuntime() { release(); }

void SyclRuntime::release() noexcept {
  for (const Device& device : devices_) {
    if (device.queue != nullptr) api_.DPCTLQueue_Delete(device.queue);
    api_.DPCTLDevice_Delete(device.handle);
  }
  for (sycl::Context context : contexts_) api_.DPCTLContext_Delete(context);
}

// --- devices -----------------------------------------------------------------------------------------------------

void SyclRuntime::make_contexts() {
  std::vector<sycl::Platform> platforms;
  for (const Device& device : devices_) platforms.push_back(api_.DPCTLDevice_GetPlatform(device.handle));
  for (std::size_t first = 0; first < devices_.size(); ++first) {
    if (devices_[first].context != nullptr) continue;
    std::vector<std::size_t> members;
    std::vector<sycl::Device> handles;
    for (std::size_t i = first; i < devices_.size(); ++i) {
      if (!api_.DPCTLPlatform_AreEq(platforms[first], platforms[i])) continue;
      members.push_back(i);
      handles.push_back(devices_[i].handle);
    }
    const sycl::DeviceVector together = api_.DPCTLDeviceVector_CreateFromArray(handles.size(), handles.data());
    const sycl::Context context = api_.DPCTLContext_CreateFromDevices(together, take_asynchronous_error, 0);
    api_.DPCTLDeviceVector_Delete(together);
    if (context == nullptr) break;
    contexts_.push_back(context);
    for (const std::size_t i : members) devices_[i].context = context;
  }
  for (sycl::Platform platform : platforms) api_.DPCTLPlatform_Delete(platform);
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].context == nullptr) fail("DPCTLContext_CreateFromDevices", static_cast<int>(i));
    devices_[i].queue = make_queue(devices_[i]);
  }
}

std::string SyclRuntime::version() const {
  const auto& facts = devices_.front().info.attributes;
  return "DPC++ " + sycl::told(api_, api_.DPCTLService_GetDPCPPVersion()) + ", " + facts.at("platform") + " (" +
         facts.at("platform_version") + "), driver " + facts.at("driver_version");
}

const SyclRuntime::Device& SyclRuntime::at(int device) const {
  if (device < 0 || device >= count()) {
    throw CallerError("device " + std::to_string(device) + " of runtime sycl does not exist: it was opened for " +
                      std::to_string(count()));
  }
  return devices_[static_cast<std::size_t>(device)];
}

// DPCTL keeps what SYCL said to itself.
void SyclRuntime::fail(const char* call, int device, const std::string& detail) const {
  throw RuntimeCallError(
      call, "a SYCL error", asynchronous_error.exchange(0), device,
      (detail.empty() ? "" : detail + "; ") + std::string("DPCTL_VERBOSITY=error prints what SYCL said"));
}

// A call that returns nothing: what goes wrong comes as an exception of SYCL's, or to the handler.
template <typename Call>
void SyclRuntime::waited(const char* name, int device, const Call& call) const {
  try {
    call();
  } catch (const std::exception& error) {
    fail(name, device, error.what());
  } catch (...) {  // of another C++ library than ours
    fail(name, device);
  }
  if (asynchronous_error.load() != 0) fail(name, device, "reported for a queue of this process");
}

MemoryInfo SyclRuntime::memory(int device) const {
  const Device& mine = at(device);
  MemoryInfo info;
  info.total_bytes = mine.info.memory_bytes;
  if (!sycl::is_gpu(api_, mine.handle)) {
    info.free_bytes = std::min(memory_now().free_bytes, info.total_bytes);
    return info;
  }
  std::size_t taken = 0;
  const std::lock_guard lock(memory_mutex_);
  for (const auto& [memory, allocation] : allocations_) {
    if (allocation.device == device && allocation.kind == MemoryKind::kDevice) taken += allocation.bytes;
  }
  info.free_bytes = info.total_bytes - std::min(taken, info.total_bytes);
  return info;
}

std::string SyclRuntime::peer_access(int device, int peer) {
  const Device& mine = at(device);
  const Device& other = at(peer);
  if (device == peer) return {};
  const std::string pair =
      "device " + std::to_string(device) + " may not access memory of device " + std::to_string(peer) + ": ";
  if (!peer_access_allowed_) return pair + "peer access is off in this launch";
  if (mine.context != other.context) return pair + "they are of two SYCL platforms";
  if (api_.DPCTLDevice_CanAccessPeer == nullptr || api_.DPCTLDevice_EnablePeerAccess == nullptr) {
    return pair + "this DPCTL cannot ask for it, 0.21 or newer can";
  }
  if (!api_.DPCTLDevice_CanAccessPeer(mine.handle, other.handle, sycl::kAccessSupported)) {
    return pair + "SYCL says that there is no peer path";
  }
  const std::lock_guard lock(peers_mutex_);
  if (peers_.emplace(device, peer).second) api_.DPCTLDevice_EnablePeerAccess(mine.handle, other.handle);
  return {};
}

// --- memory ------------------------------------------------------------------------------------------------------

void* SyclRuntime::allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) {
  const Device& mine = at(device);
  if (options.write_combined) throw Unsupported("SYCL devices have no write-combined memory");
  if (options.fabric_handle) throw Unsupported("SYCL devices have no fabric handles; leave --handles out");
  if (kind == MemoryKind::kPinned && (options.huge_pages || (options.numa_node >= 0 && numa_node_count() > 1))) {
    throw Unsupported("host USM lies where SYCL puts it: it takes no " +
                      std::string(options.huge_pages ? "huge pages" : "NUMA node"));
  }
  const std::size_t taken = std::max<std::size_t>(bytes, 1);
  void* memory = nullptr;
  if (kind == MemoryKind::kPageable) {
    memory = map_host_memory(taken, options.numa_node, options.huge_pages);
  } else {
    const Usm usm = usm_of(kind);
    if (const std::string reason = why_no_usm(device, usm.aspect, usm.name); !reason.empty()) throw Unsupported(reason);
    memory = (api_.*(usm.allocate))(taken, mine.queue);
    if (memory == nullptr) {
      throw MemoryError(std::to_string(taken) + " bytes of " + usm.name + " USM could not be had on device " +
                        std::to_string(device) + "; one allocation may have at most " +
                        mine.info.attributes.at("max_allocation_bytes"));
    }
  }
  const std::lock_guard lock(memory_mutex_);
  allocations_[memory] = {kind, device, taken};
  return memory;
}

void SyclRuntime::deallocate(void* memory) noexcept {
  Allocation allocation{};
  {
    const std::lock_guard lock(memory_mutex_);
    const auto found = allocations_.find(memory);
    if (found == allocations_.end()) return;
    allocation = found->second;
    allocations_.erase(found);
  }
  if (allocation.kind == MemoryKind::kPageable) {
    unmap_host_memory(memory, allocation.bytes);
  } else {
    api_.DPCTLfree_with_context(memory, devices_[static_cast<std::size_t>(allocation.device)].context);
  }
}

std::string SyclRuntime::why_no_usm(int device, int aspect, const char* name) const {
  const Device& mine = at(device);
  return api_.DPCTLDevice_HasAspect(mine.handle, aspect) ? "" : mine.info.name + " has no " + name + " USM";
}

std::string SyclRuntime::why_not_managed(int device, ManagedUse use) const {
  const Usm usm = usm_of(MemoryKind::kManaged);
  const std::string reason = why_no_usm(device, usm.aspect, usm.name);
  if (!reason.empty() || use == ManagedUse::kDefault) return reason;
  return "SYCL moves shared USM as it likes: managed = " + std::string(to_string(use)) + " is of CUDA and HIP";
}

SharedHandle SyclRuntime::share(void*) { throw Unsupported(kNotShared); }
void* SyclRuntime::open_shared(int, const SharedHandle&) { throw Unsupported(kNotShared); }

// --- queues ------------------------------------------------------------------------------------------------------

sycl::Queue SyclRuntime::make_queue(const Device& device) const {
  sycl::Queue queue = api_.DPCTLQueue_Create(device.context, device.handle, take_asynchronous_error,
                                             sycl::kInOrder | sycl::kEnableProfiling);
  if (queue == nullptr) fail("DPCTLQueue_Create", device.info.ordinal);
  return queue;
}

void SyclRuntime::replace(sycl::Event& held, sycl::Event by) const noexcept {
  if (held != nullptr) api_.DPCTLEvent_Delete(held);
  held = by;
}

StreamHandle SyclRuntime::create_stream(int device) {
  const Device& mine = at(device);
  return new SyclStream{make_queue(mine), device};
}

void SyclRuntime::destroy_stream(StreamHandle stream) noexcept {
  const std::unique_ptr<SyclStream> mine(&stream_of(stream));
  try {
    synchronize(stream);
  } catch (const Error&) {
    // The device is lost, and what was queued there.
  }
  replace(mine->last, nullptr);
  api_.DPCTLQueue_Delete(mine->queue);
}

void SyclRuntime::synchronize(StreamHandle stream) {
  const SyclStream& mine = stream_of(stream);
  waited("DPCTLQueue_Wait", mine.device, [&] { api_.DPCTLQueue_Wait(mine.queue); });
}

bool SyclRuntime::done(StreamHandle stream) {
  const SyclStream& mine = stream_of(stream);
  return mine.last == nullptr || api_.DPCTLEvent_GetCommandExecutionStatus(mine.last) == sycl::kComplete;
}

void SyclRuntime::copy_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                             StreamHandle stream) {
  if (bytes == 0) return;
  SyclStream& mine = stream_of(stream);
  if (contexts_.size() > 1 && target_device >= 0 && source_device >= 0 &&
      at(target_device).context != at(source_device).context) {
    throw Unsupported("SYCL does not copy between devices of two platforms");
  }
  const sycl::Event copied = api_.DPCTLQueue_Memcpy(mine.queue, target, source, bytes);
  if (copied == nullptr) fail("DPCTLQueue_Memcpy", mine.device);
  replace(mine.last, copied);
}

EventHandle SyclRuntime::create_event(int device) {
  if (!api_.DPCTLDevice_HasAspect(at(device).handle, sycl::kQueueProfiling)) {
    throw Unsupported(at(device).info.name + " has no profiling of queues; use clock host");
  }
  return new SyclEvent();
}

void SyclRuntime::destroy_event(EventHandle event) noexcept {
  const std::unique_ptr<SyclEvent> mine(&event_of(event));
  replace(mine->recorded, nullptr);
}

void SyclRuntime::record(EventHandle event, StreamHandle stream) {
  const SyclStream& mine = stream_of(stream);
  const sycl::Event reached = api_.DPCTLQueue_SubmitBarrier(mine.queue);
  if (reached == nullptr) fail("DPCTLQueue_SubmitBarrier", mine.device);
  replace(event_of(event).recorded, reached);
}

void SyclRuntime::wait(StreamHandle stream, EventHandle event) {
  SyclStream& mine = stream_of(stream);
  if (event_of(event).recorded == nullptr) return;
  const sycl::Event passed = api_.DPCTLQueue_SubmitBarrierForEvents(mine.queue, &event_of(event).recorded, 1);
  if (passed == nullptr) fail("DPCTLQueue_SubmitBarrierForEvents", mine.device);
  replace(mine.last, passed);
}

void SyclRuntime::synchronize_event(EventHandle event) {
  const sycl::Event recorded = event_of(event).recorded;
  if (recorded == nullptr) return;
  waited("DPCTLEvent_Wait", -1, [&] { api_.DPCTLEvent_Wait(recorded); });
}

// By when the barriers ended: each ends when all before it on its queue has.
std::int64_t SyclRuntime::elapsed_ns(EventHandle start, EventHandle stop) {
  std::array<std::uint64_t, 2> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const sycl::Event recorded = event_of(i == 0 ? start : stop).recorded;
    if (recorded != nullptr) ends[i] = api_.DPCTLEvent_GetProfilingInfoEnd(recorded);
    if (ends[i] == 0) {
      fail("DPCTLEvent_GetProfilingInfoEnd", -1, recorded == nullptr ? "the event was never recorded" : "");
    }
  }
  return static_cast<std::int64_t>(ends[1] - ends[0]);
}

// --- kernels, and copies that are not timed ----------------------------------------------------------------------

std::string SyclRuntime::why_no_kernels() const {
  return "SYCL devices have no kernels of ours; use transport copy_engine, staging or mpi, or --devices cuda or hip";
}
KernelHandle SyclRuntime::kernel(int, std::string_view) { throw Unsupported(why_no_kernels()); }
void SyclRuntime::launch(KernelHandle, const LaunchShape&, void**, StreamHandle) {
  throw Unsupported(why_no_kernels());
}

void SyclRuntime::copy_now(void* target, int target_device, const void* source, int source_device, std::size_t bytes) {
  if (bytes == 0) return;
  const int device = target_device >= 0 ? target_device : source_device;
  if (device < 0) {
    std::memcpy(target, source, bytes);
    return;
  }
  const sycl::Event copied = api_.DPCTLQueue_Memcpy(at(device).queue, target, source, bytes);
  if (copied == nullptr) fail("DPCTLQueue_Memcpy", device);
  const auto give_back = [this](void* event) { api_.DPCTLEvent_Delete(event); };
  const std::unique_ptr<void, decltype(give_back)> held(copied, give_back);
  waited("DPCTLEvent_Wait", device, [&] { api_.DPCTLEvent_Wait(copied); });
}

std::shared_ptr<DeviceRuntime> open_sycl_runtime(const RuntimeRequest& request) {
  return std::make_shared<SyclRuntime>(request);
}

}  // namespace linkgauge
