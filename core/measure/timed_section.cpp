#include "measure/timed_section.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/not_copied.h"
#include "kernels/kernels.h"

namespace linkgauge {
namespace {

constexpr std::int64_t kLateNs = 1'000;

// A waiting kernel's looks before it gives up. A look is some nanoseconds on a host device and about a microsecond over
// PCIe: some seconds on either, far more than filling a queue takes.
constexpr std::uint64_t kHostGateLooks = std::uint64_t{1} << 32;
constexpr std::uint64_t kDeviceGateLooks = std::uint64_t{1} << 23;

// Brings the ranks to the start of a sample; returns scheduled_ns, 0 where nothing was scheduled.
std::int64_t bring_together(SectionContext& context) {
  const Timing& timing = context.timing;
  if (timing.cadence == Cadence::kBarrier) {
    context.operation.library_barrier();
    return 0;
  }
  if (timing.arrival == Arrival::kFree) return 0;
  const std::int64_t offset_ns = timing.arrival == Arrival::kSkewed ? timing.skew_ns * context.group.rank() : 0;
  const std::int64_t scheduled_ns = context.group.align(context.lead_ns, offset_ns, context.progress);
  if (now_ns() > scheduled_ns + offset_ns + kLateNs) ++context.late;
  return scheduled_ns;
}

// The host's clock around the operations.
class HostSection final : public TimedSection {
 public:
  explicit HostSection(SectionContext& context) : context_(context) {}

  void take(Sample& sample) override {
    Operation& operation = context_.operation;
    const int batch = context_.batch;
    sample.scheduled_ns = bring_together(context_);
    const std::int64_t start_ns = now_ns();
    for (int i = 0; i < batch; ++i) operation.post();
    operation.complete();
    const std::int64_t stop_ns = now_ns();
    sample.start_ns = start_ns;
    sample.ns = stop_ns - start_ns;
    sample.iterations = batch * operation.steps();
  }

 private:
  SectionContext& context_;
};

// Events before and after the work in each of the operation's queues.
class QueueEvents {
 public:
  QueueEvents(DeviceRuntime& runtime, std::vector<Operation::DeviceQueue> queues)
      : runtime_(runtime), queues_(std::move(queues)) {
    for (const Operation::DeviceQueue& queue : queues_) {
      starts_.emplace_back(runtime_, queue.device);
      stops_.emplace_back(runtime_, queue.device);
    }
  }

  const std::vector<Operation::DeviceQueue>& queues() const { return queues_; }
  // The rank's own device, which is current: the first queue's.
  int own() const { return queues_.front().device; }
  void record_start(std::size_t queue) { record(starts_[queue], queues_[queue]); }
  void await_start(std::size_t queue) { runtime_.synchronize_event(starts_[queue].handle()); }
  void record_starts() {
    for (std::size_t i = 0; i < queues_.size(); ++i) record_start(i);
  }
  void record_stops() {
    for (std::size_t i = 0; i < queues_.size(); ++i) record(stops_[i], queues_[i]);
  }
  // The longest of the timed queues; of queues on one device, from the first start to the last stop.
  std::int64_t elapsed_ns() {
    std::int64_t longest = 0;
    for (const Event& event : starts_) runtime_.synchronize_event(event.handle());
    for (const Event& event : stops_) runtime_.synchronize_event(event.handle());
    for (std::size_t stop = 0; stop < queues_.size(); ++stop) {
      for (std::size_t start = 0; start < queues_.size(); ++start) {
        if (queues_[start].device != queues_[stop].device || !queues_[start].timed || !queues_[stop].timed) continue;
        longest = std::max(longest, runtime_.elapsed_ns(starts_[start].handle(), stops_[stop].handle()));
      }
    }
    return longest;
  }

 private:
  // HIP records on streams of the current device only. It costs nothing where that is the rank's own.
  void record(const Event& event, const Operation::DeviceQueue& queue) {
    const OtherDevice current(runtime_, queue.device, own());
    runtime_.record(event.handle(), queue.stream);
  }

  DeviceRuntime& runtime_;
  std::vector<Operation::DeviceQueue> queues_;
  std::vector<Event> starts_;
  std::vector<Event> stops_;
};

// The device's clock: events around the operations. start_ns is the host's time of submission.
class EventSection final : public TimedSection {
 public:
  EventSection(SectionContext& context, DeviceRuntime& runtime)
      : context_(context), events_(runtime, context.operation.queues()) {}

  void take(Sample& sample) override {
    sample.scheduled_ns = bring_together(context_);
    sample.start_ns = now_ns();
    events_.record_starts();
    for (int i = 0; i < context_.batch; ++i) context_.operation.post();
    events_.record_stops();
    context_.operation.complete();
    sample.ns = events_.elapsed_ns();
    sample.iterations = context_.batch * context_.operation.steps();
  }

 private:
  SectionContext& context_;
  QueueEvents events_;
};

// As nvbandwidth does: each queue is held by a kernel until everything is queued on every rank, so that what is timed
// holds no cost of queuing.
class GatedSection final : public TimedSection {
 public:
  GatedSection(SectionContext& context, DeviceRuntime& runtime)
      : context_(context), runtime_(runtime), events_(runtime, context.operation.queues()) {
    if (events_.queues().empty()) return;
    words_ = Buffer(runtime, events_.own(), MemoryKind::kPinned, sizeof(GateWords));
    new (words_.data()) GateWords();
    for (const Operation::DeviceQueue& queue : events_.queues()) {
      kernels_.push_back(runtime.kernel(queue.device, kKernelGate));
    }
    looks_ = runtime.kind() == RuntimeKind::kHost ? kHostGateLooks : kDeviceGateLooks;
  }

  // A gate looks at the words until it is open: after a failure they stay until each has seen that it is.
  ~GatedSection() override {
    open();
    for (std::size_t queue = 0; queue < held_; ++queue) {
      try {
        events_.await_start(queue);
      } catch (const Error&) {  // the device is lost, and its gates
      }
    }
  }

  void take(Sample& sample) override {
    ++turn_;
    const Opener opener(*this);  // no stream stays held, whatever throws
    sample.start_ns = now_ns();
    shut();
    for (int i = 0; i < context_.batch; ++i) context_.operation.post();
    events_.record_stops();
    context_.group.barrier(context_.progress);
    sample.scheduled_ns = bring_together(context_);
    open();
    context_.operation.complete();
    sample.ns = events_.elapsed_ns();
    sample.iterations = context_.batch * context_.operation.steps();
    if (!events_.queues().empty() && words().gave_up.load() != 0) {
      throw Unsupported("the cadence gated: a queue did not take all operations while it was held");
    }
  }

 private:
  struct GateWords {
    std::atomic<std::uint64_t> open{0};
    std::atomic<std::uint64_t> gave_up{0};
  };
  class Opener : linkgauge::NotCopied {
   public:
    explicit Opener(GatedSection& section) : section_(section) {}
    ~Opener() { section_.open(); }

   private:
    GatedSection& section_;
  };

  GateWords& words() { return *static_cast<GateWords*>(words_.data()); }
  void open() {
    if (words_.data() != nullptr) words().open.store(turn_, std::memory_order_release);
  }
  // A gate and behind it the event of the start, which comes once the gate is open.
  void shut() {
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      const Operation::DeviceQueue& queue = events_.queues()[i];
      const OtherDevice current(runtime_, queue.device, events_.own());
      runtime_.launch_with(kernels_[i], {}, queue.stream, &words().open, turn_, looks_, &words().gave_up);
      events_.record_start(i);
      held_ = std::max(held_, i + 1);
    }
  }

  SectionContext& context_;
  DeviceRuntime& runtime_;
  QueueEvents events_;
  Buffer words_;
  std::vector<KernelHandle> kernels_;
  std::size_t held_ = 0;  // queues that were ever held
  std::uint64_t turn_ = 0;
  std::uint64_t looks_ = 0;
};

}  // namespace

std::unique_ptr<TimedSection> make_timed_section(SectionContext& context) {
  const Timing& timing = context.timing;
  const bool gated = timing.cadence == Cadence::kGated;
  if (!gated && timing.clock == ClockKind::kHost) return std::make_unique<HostSection>(context);

  const std::string what = gated ? "the cadence gated" : "the clock event";
  if (gated && timing.clock == ClockKind::kHost) {
    throw Unsupported("the cadence gated is timed by events: ask for clock event");
  }
  const bool possible =
      context.runtime != nullptr && (context.operation.lane() < 0 || !context.operation.queues().empty());
  if (!context.group.agree(possible, context.progress) || context.runtime == nullptr) {
    throw Unsupported(what + " needs an operation that runs in device queues; " + context.transport + " does not here");
  }
  if (gated) return std::make_unique<GatedSection>(context, *context.runtime);
  return std::make_unique<EventSection>(context, *context.runtime);
}

}  // namespace linkgauge
