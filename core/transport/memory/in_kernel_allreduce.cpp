#include "transport/memory/in_kernel_allreduce.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/errors.h"
#include "transport/agreement.h"

namespace linkgauge {
namespace {

constexpr std::int64_t kHipTickNs = 10;
constexpr int kKernelPollsPerAbortCheck = 256;  // aborted() reads a shared line that is seldom written
constexpr std::int64_t kTuneNs = 1'000'000'000;

}  // namespace

InKernelAllreduce::InKernelAllreduce(Transport& transport, const RankContext& context, const CaseSpec& spec)
    : BufferedOperation(transport, context, spec), on_host_(context.runtime->name() == "host") {}

// A kernel that waits for a rank which has failed is told to leave. What ended the stream's work early, the poll
// throws.
void InKernelAllreduce::complete() {
  for (int poll = 1; !finished(); ++poll) {
    if (on_host_) std::this_thread::yield();  // the stream's own thread may need this core
    if (poll % kKernelPollsPerAbortCheck == 0 && group().aborted()) host_word(1).store(1, std::memory_order_release);
  }
  const std::uint64_t word = host_word(0).load(std::memory_order_acquire);
  if (word == 0) return;
  group().throw_if_aborted();
  const direct::Failure failure = direct::failure_of(word);
  throw Error(mechanism().algorithm + " gave up: in operation " + std::to_string(failure.epoch) + " " +
              missed(failure) + " within " + std::to_string(kKernelPatienceNs / 1'000'000'000) + " s");
}

void InKernelAllreduce::allocate_and_agree() {
  const int device = context().device();
  agreeing(group(), {}, [&] {
    multiprocessors_ = least_multiprocessors();
    if (mechanism().blocks > static_cast<int>(multiprocessors_)) {
      throw Unsupported("all blocks must be on every device at once: at most " + std::to_string(multiprocessors_) +
                        ", not " + std::to_string(mechanism().blocks));
    }
    host_words_ = Buffer(runtime(), device, MemoryKind::kPinned, kHostWords * sizeof(std::uint64_t));
    std::memset(host_words_.data(), 0, host_words_.size());
    stream_ = Stream(runtime(), device);
    allocate(device);
  });
  std::string reason;
  for (const int other : context().device_of_rank) {
    if (other != device && reason.empty()) reason = runtime().peer_access(device, other);
  }
  agree_or_throw(group(), reason);
}

Buffer InKernelAllreduce::zeroed(std::size_t bytes) {
  const std::vector<std::byte> zeros(bytes);
  Buffer buffer = transport().make_buffer(context(), spec(), MemoryKind::kDevice, bytes, spec().places.source.options);
  runtime().copy_now(buffer.data(), buffer.copy_device(), zeros.data(), -1, bytes);
  return buffer;
}

// The grid must be the same everywhere, and fit on the smallest device at once.
unsigned InKernelAllreduce::least_multiprocessors() {
  const int mine = std::max(1, runtime().describe(context().device()).multiprocessors);
  return static_cast<unsigned>(-group().largest_of(-mine, {}));
}

std::vector<void*> InKernelAllreduce::reachable(const Buffer* buffer) {
  Flows flows;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank()) continue;
    flows.add({peer, rank(), nullptr, nullptr});
    flows.add({rank(), peer, buffer, nullptr});
  }
  const std::vector<PeerBuffer> opened = transport().peers(context(), spec(), flows, ExposedEnd::kSource);
  std::vector<void*> places(static_cast<std::size_t>(ranks()));
  places[static_cast<std::size_t>(rank())] = buffer->data();
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (flows[i].target != rank()) continue;
    places[static_cast<std::size_t>(flows[i].source)] = opened[i].data;
    opened_.push_back(opened[i]);
  }
  return places;
}

// Parts whose devices differ may differ in what there is to choose: each has its turn, with one choice too.
std::size_t InKernelAllreduce::fastest_of(std::size_t count, const std::function<Trial(std::size_t)>& attempt) {
  std::size_t best = 0;
  if (on_host_) return best;
  context().while_others_wait([&] {
    if (count <= 1) return;
    const RoundsOfTimes rounds = timed_in_rounds(count, {.budget_ns = kTuneNs}, attempt);
    best = choose_by_times(rounds).index;
  });
  return best;
}

std::uint64_t InKernelAllreduce::patience() const {
  return static_cast<std::uint64_t>(runtime().name() == "hip" ? kKernelPatienceNs / kHipTickNs : kKernelPatienceNs);
}

void InKernelAllreduce::disconnect() noexcept {
  if (group().aborted() && host_words_.data() != nullptr) host_word(1).store(1, std::memory_order_release);
  stream_.end();  // a kernel that waits for its peers gives up before long
  opened_.clear();
}

void InKernelAllreduce::free_scratch() noexcept {
  stream_ = Stream();
  host_words_ = Buffer();
}

}  // namespace linkgauge
