#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "errors.h"
#include "kernels/direct_text.h"
#include "kernels/kernels.h"
#include "measure/clock.h"
#include "pattern/buffered_operation.h"
#include "transport/agreement.h"
#include "transport/kernel_allreduce.h"
#include "transport/peer_memory.h"

namespace linkgauge {
namespace {

// How long a kernel waits for its peers: longer than any rank is late, shorter than it takes for a case to be seen as
// hung.
constexpr std::int64_t kPatienceNs = 6'000'000'000;
constexpr std::int64_t kHipTickNs = 10;
constexpr std::size_t kFailureWords = 2;
constexpr int kPollsPerAbortCheck = 256;  // aborted() reads a shared line that is seldom written
constexpr int kTunedOperations = 5;
constexpr std::size_t kSmallBytes = std::size_t{1} << 20;  // below, so few would be lost in the host's own spread
constexpr int kTunedSmallOperations = 40;
constexpr std::int64_t kTuneNs = 1'000'000'000;  // on a slow link not every grid is tried

// Ranks meet inside the kernel: one launch an operation.
class DeviceMetAllreduce final : public BufferedOperation {
 public:
  DeviceMetAllreduce(Transport& transport, const RankContext& context, const CaseSpec& spec, bool pushes)
      : BufferedOperation(transport, context, spec),
        mode_(spec.algorithm == "one_shot" ? direct::kOneShot
              : pushes                     ? direct::kTwoShotPush
                                           : direct::kTwoShotPull) {}

  void post() override {
    ++epoch_;
    launch();
  }

  void complete() override {
    wait_for_stream();
    const std::uint64_t word = failure_word(0).load(std::memory_order_acquire);
    if (word == 0) return;
    if (group().aborted()) throw PeerError("another rank gave up during an allreduce");
    throw Error(described(direct::failure_of(word)));
  }

  std::vector<DeviceQueue> queues() const override { return {{stream_.handle(), context().device()}}; }

 private:
  void connect() override {
    const int device = context().device();
    allocate(device);
    std::string reason;
    for (const int other : context().device_of_rank) {
      if (other != device && reason.empty()) reason = runtime().peer_access(device, other);
    }
    agree_or_throw(group(), reason);
    // The sources and targets of all ranks, then their flags, by rank.
    std::vector<void*> places = reachable(source());
    if (spec().in_place) places.insert(places.end(), places.begin(), places.end());
    for (const Buffer* buffer : {target(), static_cast<const Buffer*>(&flags_)}) {
      if (buffer == target() && spec().in_place) continue;
      const std::vector<void*> more = reachable(buffer);
      places.insert(places.end(), more.begin(), more.end());
    }
    runtime().copy_now(lists_.data(), device, places.data(), -1, places.size() * sizeof(void*));
    tune();
  }

  void allocate(int device) {
    std::string reason;
    try {
      multiprocessors_ = least_multiprocessors();
      if (spec().blocks > static_cast<int>(multiprocessors_)) {
        throw Unsupported("device_barrier: all blocks must be on every device at once: at most " +
                          std::to_string(multiprocessors_) + ", not " + std::to_string(spec().blocks));
      }
      // A peer may write a flag as soon as it has the handle: they are zero before.
      const std::vector<std::byte> zeros(direct::flag_words(multiprocessors_) * sizeof(std::uint64_t));
      flags_ = Buffer(runtime(), device, MemoryKind::kDevice, zeros.size());
      runtime().copy_now(flags_.data(), flags_.copy_device(), zeros.data(), -1, zeros.size());
      lists_ = Buffer(runtime(), device, MemoryKind::kDevice, 3 * static_cast<std::size_t>(ranks()) * sizeof(void*));
      failure_ = Buffer(runtime(), device, MemoryKind::kPinned, kFailureWords * sizeof(std::uint64_t));
      std::memset(failure_.data(), 0, failure_.size());
      stream_ = Stream(runtime(), device);
      kernel_ = runtime().kernel(device, kKernelAllreduce);
    } catch (const MemoryError& error) {
      reason = error.what();
    } catch (const Unsupported& error) {
      reason = error.what();
    }
    agree_or_throw(group(), reason);
  }

  // The grid must be the same everywhere, and fit on the smallest device at once.
  unsigned least_multiprocessors() {
    const int mine = std::max(1, runtime().describe(context().device()).multiprocessors);
    std::vector<std::byte> bytes(sizeof mine);
    std::memcpy(bytes.data(), &mine, sizeof mine);
    int least = mine;
    for (const std::vector<std::byte>& other : group().exchange(bytes, {})) {
      int theirs = 0;
      std::memcpy(&theirs, other.data(), sizeof theirs);
      least = std::min(least, theirs);
    }
    return static_cast<unsigned>(least);
  }

  // Where every rank's `buffer` is for this rank's device.
  std::vector<void*> reachable(const Buffer* buffer) {
    std::vector<Flow> flows;
    for (int owner = 0; owner < ranks(); ++owner) {
      for (int user = 0; user < ranks(); ++user) {
        if (owner != user) flows.push_back({owner, user, owner == rank() ? buffer : nullptr, nullptr});
      }
    }
    const std::vector<PeerBuffer> opened = open_peers(context(), flows, ExposedEnd::kSource);
    std::vector<void*> places(static_cast<std::size_t>(ranks()));
    places[static_cast<std::size_t>(rank())] = buffer->data();
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (flows[i].target != rank()) continue;
      places[static_cast<std::size_t>(flows[i].source)] = opened[i].data;
      opened_.push_back(opened[i]);
    }
    return places;
  }

  void disconnect() noexcept override {
    try {
      if (group().aborted() && failure_.data() != nullptr) failure_word(1).store(1, std::memory_order_release);
      stream_.synchronize();  // a kernel that waits for its peers gives up before long
    } catch (const Error&) {  // the device is lost, and what ran on it
    }
    opened_.clear();
  }
  void free_scratch() noexcept override {
    stream_ = Stream();
    flags_ = Buffer();
    lists_ = Buffer();
    failure_ = Buffer();
  }

  std::atomic_ref<std::uint64_t> failure_word(std::size_t index) const {
    return std::atomic_ref<std::uint64_t>(static_cast<std::uint64_t*>(failure_.data())[index]);
  }

  // A kernel that waits for a rank which has failed is told to leave.
  void wait_for_stream() {
    const bool crowded = runtime().name() == "host";  // the stream's own thread may need this core
    for (int poll = 1; !runtime().done(stream_.handle()); ++poll) {
      if (crowded) std::this_thread::yield();
      if (poll % kPollsPerAbortCheck == 0 && group().aborted()) failure_word(1).store(1, std::memory_order_release);
    }
    stream_.synchronize();  // throws what ended the stream's work early
  }

  void launch() {
    void* lists = lists_.data();
    std::int32_t count = ranks();
    std::int32_t me = rank();
    std::uint64_t elements = static_cast<std::uint64_t>(spec().size_bytes) / size_of(spec().datatype);
    auto datatype = static_cast<std::uint32_t>(spec().datatype);
    auto op = static_cast<std::uint32_t>(spec().op);
    std::uint32_t mode = mode_;
    std::uint64_t epoch = epoch_;
    auto patience = static_cast<std::uint64_t>(runtime().name() == "hip" ? kPatienceNs / kHipTickNs : kPatienceNs);
    void* failure = failure_.data();
    void* arguments[] = {&lists, &count, &me, &elements, &datatype, &op, &mode, &epoch, &patience, &failure};
    runtime().launch(kernel_, shape_, arguments, stream_.handle());
  }

  // Tries grids on the case's own buffers, all ranks together, and keeps the one whose slowest rank is fastest.
  void tune() {
    const std::vector<LaunchShape> shapes = shapes_to_try();
    shape_ = shapes.front();
    if (shapes.size() == 1) return;
    const bool small = spec().size_bytes < static_cast<std::int64_t>(kSmallBytes);
    std::int64_t best_ns = INT64_MAX;
    std::int64_t spent_ns = 0;
    LaunchShape best = shape_;
    for (const LaunchShape& shape : shapes) {
      if (spent_ns > kTuneNs) break;
      shape_ = shape;
      spent_ns += time_operations(1);
      const std::int64_t ns = time_operations(small ? kTunedSmallOperations : kTunedOperations);
      spent_ns += ns;
      if (ns >= best_ns) continue;
      best_ns = ns;
      best = shape;
    }
    shape_ = best;
  }

  std::int64_t time_operations(int count) {
    group().barrier({});
    const std::int64_t start_ns = now_ns();
    for (int i = 0; i < count; ++i) post();
    complete();
    const std::int64_t mine = now_ns() - start_ns;
    std::vector<std::byte> bytes(sizeof mine);
    std::memcpy(bytes.data(), &mine, sizeof mine);
    std::int64_t slowest = 0;
    for (const std::vector<std::byte>& other : group().exchange(bytes, {})) {
      std::int64_t theirs = 0;
      std::memcpy(&theirs, other.data(), sizeof theirs);
      slowest = std::max(slowest, theirs);
    }
    return slowest;
  }

  // One block a multiprocessor at most: then all are on the device at once, whatever a block takes of it.
  std::vector<LaunchShape> shapes_to_try() const {
    if (runtime().name() == "host") return {{1, 1, 0}};
    if (spec().blocks > 0) return {{static_cast<unsigned>(spec().blocks), kMostAllreduceThreads, 0}};
    const auto size = static_cast<std::size_t>(spec().size_bytes);
    const std::size_t units =
        (mode_ == direct::kOneShot ? size : allreduce_part(size, ranks(), 0).bytes) / direct::kUnit;
    std::vector<LaunchShape> shapes;
    for (const unsigned threads : {512U, 256U, 128U}) {
      const auto useful = static_cast<unsigned>(
          std::clamp<std::size_t>((units + threads - 1) / threads, 1, static_cast<std::size_t>(multiprocessors_)));
      unsigned before = 0;
      for (const unsigned blocks : {useful, useful / 2, useful / 4}) {
        if (blocks == 0 || blocks == before) continue;
        shapes.push_back({blocks, threads, 0});
        before = blocks;
      }
    }
    return shapes;
  }

  std::string described(const direct::Failure& failure) const {
    const char* meeting = failure.meeting == 1 ? "begin" : failure.meeting == direct::kMeetings ? "end" : "results";
    return spec().algorithm + " gave up: in operation " + std::to_string(failure.epoch) + " rank " +
           std::to_string(failure.peer) + " did not come to block " + std::to_string(failure.block) +
           "'s meeting at the " + meeting + " within " + std::to_string(kPatienceNs / 1'000'000'000) + " s";
  }

  std::uint32_t mode_;
  std::vector<PeerBuffer> opened_;
  Buffer flags_;
  Buffer lists_;
  Buffer failure_;
  Stream stream_;
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
  unsigned multiprocessors_ = 1;
  std::uint64_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_device_met_allreduce(Transport& transport, const RankContext& context,
                                                     const CaseSpec& spec, bool pushes) {
  return std::make_unique<DeviceMetAllreduce>(transport, context, spec, pushes);
}

}  // namespace linkgauge
