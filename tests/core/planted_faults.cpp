#include "planted_faults.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/errors.h"
#include "forwarding_runtime.h"
#include "kernels/kernels.h"

namespace linkgauge {
// Another runtime, with a list of the buffers that live.
class WatchedRuntime final : public ForwardingRuntime {
 public:
  struct Block {
    int device;
    MemoryKind kind;
    std::size_t bytes;
  };

  explicit WatchedRuntime(DeviceRuntime& real) : ForwardingRuntime(real) {}

  std::map<std::byte*, Block> blocks() {
    const std::lock_guard lock(mutex_);
    return blocks_;
  }
  void fail_next_call() { fail_next_ = true; }
  void make_copies(int times) { times_ = times; }

  void* allocate(int device, MemoryKind kind, std::size_t bytes, const AllocateOptions& options) override {
    called("allocate");
    void* memory = real().allocate(device, kind, bytes, options);
    const std::lock_guard lock(mutex_);
    blocks_[static_cast<std::byte*>(memory)] = {device, kind, bytes};
    return memory;
  }
  void deallocate(void* memory) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      blocks_.erase(static_cast<std::byte*>(memory));
    }
    real().deallocate(memory);
  }
  void prefetch_managed(void* memory, std::size_t bytes, int to_device, StreamHandle stream) override {
    called("prefetch_managed");
    real().prefetch_managed(memory, bytes, to_device, stream);
  }
  SharedHandle share(void* memory) override {
    called("share");
    return real().share(memory);
  }
  void synchronize(StreamHandle stream) override {
    called("synchronize");
    real().synchronize(stream);
  }
  void copy_async(void* target, int target_device, const void* source, int source_device, std::size_t bytes,
                  StreamHandle stream) override {
    called("copy_async");
    for (int i = 0; i < times_; ++i) real().copy_async(target, target_device, source, source_device, bytes, stream);
  }
  KernelHandle kernel(int device, std::string_view kernel_name) override {
    const KernelHandle found = real().kernel(device, kernel_name);
    if (kernel_name.substr(0, std::string_view(kKernelCopy).size()) == kKernelCopy) {
      const std::lock_guard lock(mutex_);
      copies_.insert(found);
    }
    return found;
  }
  void launch(KernelHandle kernel, const LaunchShape& shape, void** arguments, StreamHandle stream) override {
    called("launch");
    for (int i = 0; i < (is_copy(kernel) ? times_.load() : 1); ++i) real().launch(kernel, shape, arguments, stream);
  }
  void launch_graph(GraphHandle graph, StreamHandle stream) override {
    called("launch_graph");
    real().launch_graph(graph, stream);
  }
  void copy_now(void* target, int target_device, const void* source, int source_device, std::size_t bytes) override {
    called("copy_now");
    real().copy_now(target, target_device, source, source_device, bytes);
  }

 private:
  void called(const char* name) {
    if (fail_next_.exchange(false)) throw RuntimeCallError(name, "injected", 1, -1, "a test requested this failure");
  }

  bool is_copy(KernelHandle kernel) {
    const std::lock_guard lock(mutex_);
    return copies_.count(kernel) > 0;
  }

  std::atomic<bool> fail_next_{false};
  std::atomic<int> times_{1};
  std::set<KernelHandle> copies_;
  std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
};

FaultInjector::FaultInjector(Fault fault, int launch_rank, DeviceRuntime& runtime)
    : fault_(std::move(fault)),
      here_(fault_.rank == launch_rank),
      runtime_(std::make_unique<WatchedRuntime>(runtime)) {}

FaultInjector::~FaultInjector() {
  if (sender_.joinable()) sender_.join();
}

DeviceRuntime& FaultInjector::runtime() { return *runtime_; }
void FaultInjector::begin_case(const CaseSpec& spec) { spec_ = spec; }

void FaultInjector::at(Moment phase, std::int64_t sample, bool after) {
  if (!here_ || fault_.phase != phase || (fault_.sample >= 0 && fault_.sample != sample)) return;
  if (after && sender_.joinable()) {  // the operation was quicker than the signal
    sender_.join();
    while (true) pause();
  }
  const bool needs_data = fault_.kind == FaultKind::kCorrupt;
  if (after != needs_data) return;
  switch (fault_.kind) {
    case FaultKind::kKill:
      send(SIGKILL);
      break;
    case FaultKind::kSegv:
      send(SIGSEGV);
      break;
    case FaultKind::kStop:
      send(SIGSTOP);
      break;
    case FaultKind::kHang:
      while (true) pause();
    case FaultKind::kThrow:
      throw RuntimeCallError("fault", "injected", 1, -1, "a test requested this failure");
    case FaultKind::kMemory:
      throw MemoryError("out of memory, as a test requested");
    case FaultKind::kCall:
      runtime_->fail_next_call();
      break;
    case FaultKind::kAddress:
      write_astray();
      break;
    case FaultKind::kCorrupt:
      flip_bytes();
      break;
    case FaultKind::kSlow:
      runtime_->make_copies(fault_.times);
      break;
  }
}

// Before the rank goes on the signal has acted: one to the process takes whichever thread runs first, which on a busy
// machine can be after the case. At kTime it comes from a thread of its own while the operation is under way.
void FaultInjector::send(int signal) {
  if (fault_.phase != Moment::kTime) {
    raise(signal);
    return;
  }
  sender_ = std::thread([signal] {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    kill(getpid(), signal);
  });
}

// Asynchronous, as a wrong kernel is: whoever calls the runtime next learns of it.
void FaultInjector::write_astray() {
  int device = -1;
  for (const auto& [memory, block] : runtime_->blocks())
    if (block.kind == MemoryKind::kDevice) device = block.device;
  if (device < 0) throw CallerError("fault 'address' needs a case with device memory, at a phase that has it");
  DeviceRuntime& real = runtime_->real();
  void* target = reinterpret_cast<void*>(std::uintptr_t{8});  // nobody's, and aligned
  std::uint64_t bytes = 64;
  std::uint32_t datatype = 0;
  std::uint32_t op = 0;
  std::uint64_t seed = 1;
  std::int32_t rank = 0;
  std::int32_t ranks = 1;
  std::uint64_t offset = 0;
  void* arguments[] = {&target, &bytes, &datatype, &op, &seed, &rank, &ranks, &offset};
  StreamHandle stream = real.create_stream(device);  // not given back: a lost context takes it along
  real.launch(real.kernel(device, kKernelFill), LaunchShape{1, 32, 0}, arguments, stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

void FaultInjector::flip_bytes() {
  constexpr std::byte kBit{0x40};
  // Buffers of data, not the small ones of flags and results, which programs follow.
  const std::size_t least = std::max<std::size_t>(spec_.traffic.bytes(), 1);
  for (const auto& [memory, block] : runtime_->blocks()) {
    if (block.bytes < least || (block.kind != spec_.places.target.kind && block.kind != spec_.places.source.kind))
      continue;
    const bool on_device = block.kind == MemoryKind::kDevice || block.kind == MemoryKind::kManaged;
    const int device = on_device ? block.device : -1;
    for (std::byte* place : {memory, memory + block.bytes - 1}) {
      std::byte value{};
      runtime_->real().copy_now(&value, -1, place, device, 1);
      value ^= kBit;
      runtime_->real().copy_now(place, device, &value, -1, 1);
      if (block.bytes == 1) break;
    }
  }
}

Fault fault_from(const std::string& words) {
  Fault fault;
  for (const auto& [name, value] : settings_of(words)) {
    if (name == "kind") {
      fault.kind = from_word<FaultKind>(value);
    } else if (name == "phase") {
      fault.phase = from_word<Moment>(value);
    } else if (name == "sample") {
      fault.sample = std::stoll(value);
    } else if (name == "rank") {
      fault.rank = std::stoi(value);
    } else if (name == "times") {
      fault.times = std::stoi(value);
    } else {
      throw CallerError("unknown key '" + name + "' of a fault, expected: kind, phase, sample, rank, times");
    }
  }
  const bool throws =
      fault.kind == FaultKind::kThrow || fault.kind == FaultKind::kMemory || fault.kind == FaultKind::kCall;
  if (throws && fault.phase == Moment::kRelease) throw CallerError("a fault's kind cannot be a failure at release");
  for (const Moment unseen : {Moment::kIdle, Moment::kCompile, Moment::kOthers}) {
    if (fault.phase == unseen) throw CallerError("no hook sees the phase " + std::string(to_string(unseen)));
  }
  return fault;
}

void set_fault(Session& session, std::optional<Fault> fault) {
  if (!fault) return session.set_hook({});
  session.set_hook([&](int launch_rank, DeviceRuntime& runtime) {
    return std::make_shared<FaultInjector>(*fault, launch_rank, runtime);
  });
}

}  // namespace linkgauge

// For Python's tests, whose sessions open this file as a library (tests/planted_faults.py).
extern "C" __attribute__((visibility("default"))) linkgauge::CaseHook* linkgauge_make_hook(
    int launch_rank, linkgauge::DeviceRuntime& runtime, const char* words) {
  return new linkgauge::FaultInjector(linkgauge::fault_from(words), launch_rank, runtime);
}
