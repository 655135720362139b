// What the cores of one NUMA node copy, read or write in memory of another (or their own): the achievable rate of the
// link between sockets, and of memory itself.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "base/joined_threads.h"
#include "base/now.h"
#include "base/words.h"
#include "device/host_cpu.h"
#include "operation/device_patterns.h"
#include "transport/device_pattern.h"
#include "transport/options.h"

namespace linkgauge {
namespace {

enum class Work : std::uint8_t { kCopy, kRead, kWrite, kTriad };

constexpr std::size_t kLineBytes = 64;
constexpr std::int64_t kAwakeNs = 1'000'000'000;          // that a thread looks for an operation which was announced
constexpr std::size_t kUnroll = 8;                        // 64-bit words that a read sums side by side: one line
constexpr std::uint64_t kFactor = 3;                      // STREAM's own scalar
constexpr std::uint64_t kOtherSeed = 0x9e3779b97f4a7c15;  // between the two arrays that a triad reads

constexpr VariantWord<Work> kWorkWords[] = {
    {"copy", Work::kCopy}, {"read", Work::kRead}, {"write", Work::kWrite}, {"triad", Work::kTriad}};
constexpr Variants<Work> kWork{"host_stream", kWorkWords};

std::vector<int> cores_of(int node) {
  std::vector<int> cores;
  for (const int core : usable_cores()) {
    if (std::max(numa_node_of_core(core), 0) == node) cores.push_back(core);
  }
  return cores;
}

// Of those that are asked for in `list` the ones that may be used here, in its order.
std::vector<int> cores_listed(const std::string& list) {
  const std::vector<int> usable = usable_cores();
  std::vector<int> cores = parse_cpu_list(list);
  std::erase_if(cores, [&](int core) { return std::find(usable.begin(), usable.end(), core) == usable.end(); });
  return cores;
}

// STREAM's triad, in whole numbers, whose sums are exact: as many loads and stores. The bytes beyond the last word too.
template <typename Number>
void triad(Number* target, const Number* source, const Number* other, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) target[i] = static_cast<Number>(source[i] + kFactor * other[i]);
}

void triad_of(std::byte* target, const std::byte* source, const std::byte* other, std::size_t bytes) {
  const std::size_t words = bytes / sizeof(std::uint64_t);
  triad(reinterpret_cast<std::uint64_t*>(target), reinterpret_cast<const std::uint64_t*>(source),
        reinterpret_cast<const std::uint64_t*>(other), words);
  const std::size_t at = words * sizeof(std::uint64_t);
  triad(reinterpret_cast<unsigned char*>(target + at), reinterpret_cast<const unsigned char*>(source + at),
        reinterpret_cast<const unsigned char*>(other + at), bytes - at);
}

std::uint64_t sum_of(const std::byte* data, std::size_t bytes) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(data);
  const std::size_t count = bytes / sizeof(std::uint64_t);
  std::uint64_t sums[kUnroll] = {};
  std::size_t i = 0;
  for (; i + kUnroll <= count; i += kUnroll) {
    for (std::size_t lane = 0; lane < kUnroll; ++lane) sums[lane] += words[i + lane];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t one : sums) sum += one;
  for (; i < count; ++i) sum += words[i];
  for (std::size_t at = count * sizeof(std::uint64_t); at < bytes; ++at)
    sum += std::to_integer<std::uint64_t>(data[at]);
  return sum;
}

// Threads that sit on cores of their own and do their share of an operation, once for each post().
class CpuStream final : public DevicePattern {
 public:
  using DevicePattern::DevicePattern;
  ~CpuStream() override { end_threads(); }

  void fill(std::uint64_t seed) override {
    const Piece piece{0, size(), rank(), 0, false};
    if (work_ != Work::kRead) data().poison(target_, piece, seed);
    if (work_ != Work::kWrite) data().fill(source_, piece, false, seed);
    if (work_ == Work::kTriad) data().fill(other_, piece, false, seed ^ kOtherSeed);
    written_ = static_cast<unsigned char>(seed | 1);
    if (work_ == Work::kWrite) std::memset(target_.data(), ~written_ & 0xff, size());
    for (Share& share : shares_) share.sum = 0;
  }
  // Threads that slept take microseconds to wake: they are awake, and look for what to do, before the clock runs.
  void put_back() override {
    const std::uint64_t due = (wakes_.fetch_add(1, std::memory_order_release) + 1) * shares_.size();
    call();
    await(awake_, due);
  }
  void post() override {
    asked_.fetch_add(1, std::memory_order_release);
    call();
  }
  void complete() override {
    const std::uint64_t due = asked_.load(std::memory_order_relaxed) * shares_.size();
    await(done_, due);
  }
  VerifyResult verify(std::uint64_t seed) override {
    VerifyResult result;
    if (work_ == Work::kCopy) data().check(target_, {0, size(), rank(), 0, false}, seed, result);
    if (work_ == Work::kRead) check_sums(result);
    if (work_ == Work::kWrite) check_written(result);
    if (work_ == Work::kTriad) check_triad(result);
    return result;
  }
  std::vector<DeviceQueue> queues() const override { return {}; }  // the host's threads are no device's queue

 private:
  struct alignas(kLineBytes) Share {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint64_t sum = 0;  // of the last read
  };

  std::size_t size() const { return traffic().bytes(); }

  void allocate() override {
    work_ = kWork.of(mechanism());
    const int own = std::max(runtime().describe(device()).numa_node, 0);
    const auto on_node = [&](AllocateOptions options) {
      if (options.numa_node < 0) options.numa_node = own;
      return make({MemoryKind::kPageable, options});
    };
    if (work_ != Work::kWrite) source_ = on_node(spec().places.source.options);
    if (work_ == Work::kTriad) other_ = on_node(spec().places.source.options);
    if (work_ != Work::kRead) target_ = on_node(spec().places.target.options);
    std::vector<int> cores = mechanism().cpu_cores.empty()
                                 ? cores_of(mechanism().cpu_node < 0 ? own : mechanism().cpu_node)
                                 : cores_listed(mechanism().cpu_cores);
    if (mechanism().blocks > 0) cores.resize(std::min(cores.size(), static_cast<std::size_t>(mechanism().blocks)));
    const std::size_t lines = (size() + kLineBytes - 1) / kLineBytes;
    shares_ = std::vector<Share>(std::min(cores.size(), lines));
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      shares_[i].begin = std::min(size(), lines * i / shares_.size() * kLineBytes);
      shares_[i].end = std::min(size(), lines * (i + 1) / shares_.size() * kLineBytes);
      threads_.start([this, i, core = cores[i]] { serve(shares_[i], core); });
    }
  }
  void free_buffers() noexcept override {
    end_threads();
    source_ = Buffer();
    other_ = Buffer();
    target_ = Buffer();
  }

  static void await(std::atomic<std::uint64_t>& count, std::uint64_t due) {
    for (std::uint64_t seen = count.load(std::memory_order_acquire); seen < due;
         seen = count.load(std::memory_order_acquire)) {
      count.wait(seen, std::memory_order_acquire);
    }
  }
  // Tells the threads that there is something new. No system call where none sleeps.
  void call() {
    calls_.fetch_add(1, std::memory_order_release);
    calls_.notify_all();
  }

  void end_threads() noexcept {
    ending_.store(true, std::memory_order_relaxed);
    call();
    threads_.join();
    shares_.clear();
    ending_.store(false, std::memory_order_relaxed);
    for (std::atomic<std::uint64_t>* count : {&calls_, &asked_, &done_, &wakes_, &awake_}) count->store(0);
  }

  void serve(Share& share, int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(core), &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    (void)pthread_setname_np(pthread_self(), "lg-cpu");
    std::uint64_t served = 0;
    std::uint64_t woken = 0;
    while (true) {
      const std::uint64_t heard = calls_.load(std::memory_order_acquire);
      if (ending_.load(std::memory_order_relaxed)) return;
      if (asked_.load(std::memory_order_acquire) > served) {
        ++served;
        serve_once(share);
        done_.fetch_add(1, std::memory_order_release);
        done_.notify_one();
      } else if (wakes_.load(std::memory_order_acquire) > woken) {
        ++woken;
        awake_.fetch_add(1, std::memory_order_release);
        awake_.notify_one();
        look_for_more(heard);
      } else {
        calls_.wait(heard, std::memory_order_acquire);
      }
    }
  }
  // Until there is something new. Gives the core away at each look: the rank's own thread may have no other.
  void look_for_more(std::uint64_t heard) const {
    constexpr int kLooksPerClock = 256;
    const std::int64_t until_ns = now_ns() + kAwakeNs;
    for (int look = 1; calls_.load(std::memory_order_acquire) == heard; ++look) {
      if (look % kLooksPerClock == 0 && now_ns() > until_ns) return;
      sched_yield();
    }
  }
  void serve_once(Share& share) {
    const std::size_t bytes = share.end - share.begin;
    switch (work_) {
      case Work::kCopy:
        std::memcpy(target_.at(share.begin), source_.at(share.begin), bytes);
        break;
      case Work::kRead:
        share.sum = sum_of(source_.at(share.begin), bytes);
        break;
      case Work::kWrite:
        std::memset(target_.at(share.begin), written_, bytes);
        break;
      case Work::kTriad:
        triad_of(target_.at(share.begin), source_.at(share.begin), other_.at(share.begin), bytes);
        break;
    }
  }

  void check_sums(VerifyResult& result) const {
    for (const Share& share : shares_) {
      const std::uint64_t due = sum_of(source_.at(share.begin), share.end - share.begin);
      if (share.sum == due) continue;
      return result.add(share.end - share.begin, share.begin, due, share.sum, "the sum of what one thread read");
    }
  }
  void check_written(VerifyResult& result) const {
    for (std::size_t at = 0; at < size(); ++at) check_byte(at, written_, "what the threads wrote", result);
  }
  // Line by line: what is due takes no buffer of the operation's size.
  void check_triad(VerifyResult& result) const {
    std::byte due[kLineBytes];
    for (std::size_t begin = 0; begin < size(); begin += kLineBytes) {
      const std::size_t bytes = std::min(kLineBytes, size() - begin);
      triad_of(due, source_.at(begin), other_.at(begin), bytes);
      for (std::size_t at = 0; at < bytes; ++at) {
        check_byte(begin + at, std::to_integer<unsigned char>(due[at]), "what the threads added up", result);
      }
    }
  }
  void check_byte(std::size_t at, unsigned char due, const char* where, VerifyResult& result) const {
    const unsigned char found = static_cast<const unsigned char*>(target_.data())[at];
    if (found != due) result.add(1, at, due, found, where);
  }

  Work work_ = Work::kCopy;
  Buffer source_;
  Buffer other_;  // what a triad multiplies
  Buffer target_;
  unsigned char written_ = 0;
  std::vector<Share> shares_;
  JoinedThreads threads_;  // one a share
  std::atomic<bool> ending_{false};
  std::atomic<std::uint64_t> calls_{0};  // what the threads sleep on
  std::atomic<std::uint64_t> wakes_{0};  // how often they were to wake for what comes
  std::atomic<std::uint64_t> awake_{0};  // wakes times threads
  std::atomic<std::uint64_t> asked_{0};  // operations
  std::atomic<std::uint64_t> done_{0};   // operations times threads
};

}  // namespace

std::string why_not_host_stream(const CaseSpec& spec) {
  const Mechanism& by = spec.mechanism;
  if (by.transport != "kernel") return "host_stream is a kernel of the host's cores; its transport is kernel";
  if (spec.traffic.size_bytes <= 0) return "a size of 0 moves nothing; 1 byte is the least";
  if (!kWork.read(by.variant)) return kWork.why_not(by.variant);
  if (spec.timing.clock == ClockKind::kEvent || spec.timing.cadence == Cadence::kGated) {
    return "the host's threads are timed by the host's clock; use clock host, and cadence isolated or streaming";
  }
  if (!by.cpu_cores.empty() && cores_listed(by.cpu_cores).size() != parse_cpu_list(by.cpu_cores).size()) {
    return "not all of the cores " + by.cpu_cores + " may be used here; those that may: " + listed(usable_cores());
  }
  if (by.cpu_node >= 0 && cores_of(by.cpu_node).empty()) {
    return "no core of NUMA node " + std::to_string(by.cpu_node) + " may be used here";
  }
  const std::vector<int> nodes = numa_nodes();
  for (const int node : {spec.places.source.options.numa_node, spec.places.target.options.numa_node}) {
    if (node < 0 || std::find(nodes.begin(), nodes.end(), node) != nodes.end()) continue;
    return "there is no memory on NUMA node " + std::to_string(node) + " here; nodes with memory: " + listed(nodes);
  }
  return "";
}

std::unique_ptr<Operation> make_host_stream(const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<CpuStream>(context, spec);
}

}  // namespace linkgauge
