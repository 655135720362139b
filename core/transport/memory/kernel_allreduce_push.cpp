#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/now.h"
#include "kernels/kernels.h"
#include "transport/memory/in_kernel_allreduce.h"
#include "transport/memory/kernel_allreduce.h"

namespace linkgauge {
namespace {

constexpr std::size_t kPushTunedOperations = 31;
constexpr std::size_t kTunedShapes = 4;
constexpr unsigned kLooksPerQuery = 1 << 14;  // a look at the host's own memory takes nanoseconds, a question to the
                                              // driver hundreds of them

// Every rank writes its operand into all others' scratch, without a meeting: one launch an operation, or one kernel
// that stays and begins an operation when the host says so.
class PushedAllreduce final : public InKernelAllreduce {
 public:
  PushedAllreduce(Transport& transport, const RankContext& context, const CaseSpec& spec, const KernelOptions& options)
      : InKernelAllreduce(transport, context, spec),
        stays_(options.resident),
        by_flag_(stays_ || context.runtime->kind() != RuntimeKind::kHip) {}

  void post() override {
    if (stays_ && !finished()) complete();  // one at a time
    InKernelAllreduce::post();
  }
  // An event behind a kernel that stays would not happen.
  std::vector<DeviceQueue> queues() const override {
    return stays_ ? std::vector<DeviceQueue>() : InKernelAllreduce::queues();
  }

 private:
  void connect() override {
    allocate_and_agree();
    const std::vector<void*> scratches = reachable(&scratch_);
    for (std::size_t i = 0; i < scratches.size(); ++i) job_.scratches[i] = static_cast<push::Line*>(scratches[i]);
    job_.own = static_cast<push::Line*>(scratch_.data());
    job_.source = static_cast<const unsigned char*>(source()->data());
    job_.target = static_cast<unsigned char*>(target()->data());
    job_.bytes = static_cast<std::uint64_t>(traffic().size_bytes);
    job_.patience = patience();
    job_.words = static_cast<values::u64*>(words_.data());
    job_.failure = static_cast<values::u64*>(host_words_.data());
    job_.ranks = ranks();
    job_.rank = rank();
    job_.op = static_cast<std::uint32_t>(traffic().op);
    tune();
  }

  void allocate(int device) override {
    // A peer may write a line as soon as it has the handle: their numbers are zero before, which no operation has.
    scratch_ = zeroed(push::scratch_bytes(static_cast<std::uint64_t>(traffic().size_bytes), ranks()));
    words_ = zeroed(push::kOwnWords * sizeof(std::uint64_t));
    if (stays_) {
      const std::size_t words = multiprocessors_ * push::kStartStride;  // a block a multiprocessor at most
      start_ = Buffer(runtime(), device, MemoryKind::kPinned, words * sizeof(std::uint64_t));
    }
    kernel_ = runtime().kernel(device, kKernelsAllreducePush[static_cast<std::size_t>(traffic().datatype)]);
  }

  void free_scratch() noexcept override {
    InKernelAllreduce::free_scratch();
    scratch_ = Buffer();
    words_ = Buffer();
    start_ = Buffer();
  }

  void launch() override {
    if (!stays_) return launch_from(epoch_);
    say_to_blocks(epoch_);
  }

  void launch_from(std::uint64_t epoch) {
    job_.epoch = epoch;
    runtime().launch_with(kernel_, shape_, stream_.handle(), job_);
  }

  void enter_device() override {
    if (!stays_ || staying_ || kernel_ == nullptr) return;
    const std::uint64_t ended = done_word().load(std::memory_order_acquire);
    say_to_blocks(ended);
    launch_from(ended + 1);
    staying_ = true;
  }

  void leave_device() override {
    if (!staying_) return;
    say_to_blocks(push::kLeave);
    stream_.synchronize();
    staying_ = false;
  }

  void disconnect() noexcept override {
    // The stream is waited for by the base, which first tells a kernel that waits for a rank which has failed.
    if (staying_) say_to_blocks(push::kLeave);
    staying_ = false;
    InKernelAllreduce::disconnect();
  }

  bool finished() override {
    if (job_.done == nullptr) return InKernelAllreduce::finished();
    if (done_word().load(std::memory_order_acquire) >= epoch_) return true;
    // A kernel that was ended early says nothing: the driver knows.
    const bool ended = ++looks_ % kLooksPerQuery == 0 && InKernelAllreduce::finished();
    if (ended && stays_) throw Error("one_shot's resident kernel ended before operation " + std::to_string(epoch_));
    return ended;
  }

  std::atomic_ref<std::uint64_t> done_word() const { return host_word(kOwnHostWord); }
  void say_to_blocks(std::uint64_t word) {
    auto* words = static_cast<std::uint64_t*>(start_.data());
    for (unsigned block = 0; block < shape_.blocks; ++block)
      std::atomic_ref<std::uint64_t>(words[block * push::kStartStride]).store(word, std::memory_order_release);
  }

  void choose(const LaunchShape& shape) {
    leave_device();
    shape_ = shape;
    job_.done = by_flag_ ? static_cast<values::u64*>(host_words_.data()) + kOwnHostWord : nullptr;
    job_.start = static_cast<const values::u64*>(start_.data());
    enter_device();
  }

  void tune() {
    const std::vector<LaunchShape> shapes = shapes_to_try();
    choose(shapes[fastest_of(shapes.size(), [&](std::size_t choice) {
      choose(shapes[choice]);
      return time_operations();
    })]);
    if (shapes.size() > 1) context().choose("grid", shape_.grid());
  }

  // One by one, as an isolated operation is timed: what a grid gives depends on the launch and the end as well.
  Trial time_operations() {
    std::vector<std::int64_t> times(kPushTunedOperations);
    const std::int64_t begin_ns = now_ns();
    for (std::int64_t& ns : times) {
      group().barrier({});
      const std::int64_t start_ns = now_ns();
      post();
      complete();
      ns = now_ns() - start_ns;
    }
    const auto middle = times.begin() + kPushTunedOperations / 2;
    std::nth_element(times.begin(), middle, times.end());
    return {static_cast<double>(group().largest_of(*middle, {})), group().largest_of(now_ns() - begin_ns, {})};
  }

  // One block a multiprocessor at most: then all are on the device at once.
  std::vector<LaunchShape> shapes_to_try() const {
    if (on_host_) return {{1, 1, 0}};
    if (mechanism().blocks > 0) return {{static_cast<unsigned>(mechanism().blocks), kMostAllreduceThreads, 0}};
    constexpr unsigned kWarp = 32;
    const auto lines = static_cast<std::size_t>(push::lines_of(static_cast<std::uint64_t>(traffic().size_bytes)));
    std::vector<LaunchShape> shapes;
    for (unsigned threads = kMostAllreduceThreads; threads >= kWarp && shapes.size() < kTunedShapes; threads /= 2) {
      if (threads > kWarp && threads / 2 >= lines) continue;  // half of them would have nothing to do
      const auto useful = static_cast<unsigned>(
          std::clamp<std::size_t>((lines + threads - 1) / threads, 1, static_cast<std::size_t>(multiprocessors_)));
      shapes.push_back({useful, threads, 0});
      if (useful > 1 && shapes.size() < kTunedShapes) shapes.push_back({useful / 2, threads, 0});
    }
    return shapes;
  }

  std::string missed(const direct::Failure& failure) const override {
    return "rank " + std::to_string(failure.peer) + " did not send what block " + std::to_string(failure.block) +
           " waits for";
  }

  Buffer scratch_;
  Buffer words_;
  Buffer start_;  // where a resident kernel's blocks look
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
  push::Job job_{};
  unsigned looks_ = 0;
  const bool stays_;
  // How the host learns that an operation is over: from the kernel's last block, else from the driver. Four H200 took
  // 10.0 us and 10.5 us for 8 B. On HIP plain pinned memory promises the host nothing while a kernel runs.
  const bool by_flag_;
  bool staying_ = false;  // its kernel is on the device
};

}  // namespace

std::unique_ptr<Operation> make_pushed_allreduce(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                                 const KernelOptions& options) {
  return std::make_unique<PushedAllreduce>(transport, context, spec, options);
}

}  // namespace linkgauge
