// Long: kinds of steps share one host thread, its clock and its buffers, and are read side by side.
//
// An application's steps on one rank, as its host thread begins them: what is queued on a stream and what is posted
// goes on beside what follows, until a step waits for it. Messages go over a transport's channels, collectives are
// operations of their own, copies are the runtime's. As a graph an iteration is kept once, and launched as a whole.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/now.h"
#include "base/patterns.h"
#include "base/waiting.h"
#include "device/kernel_tuning.h"
#include "mpi/library.h"
#include "operation/application_collectives.h"
#include "operation/application_copies.h"
#include "operation/make_operation.h"
#include "operation/step_times.h"
#include "traffic/program.h"
#include "transport/agreement.h"
#include "transport/data_check.h"

namespace linkgauge {
namespace {

constexpr char kGraph[] = "graph";

// Why an iteration cannot be a graph of the device's, in one sentence, or "".
std::string why_no_graph(const RankContext& context, const CaseSpec& spec) {
  if (std::string reason = context.runtime->why_no_graphs(); !reason.empty()) return reason;
  if (spec.traffic.program == nullptr) return "";
  const std::string& by = spec.mechanism.collectives.empty() ? spec.mechanism.transport : spec.mechanism.collectives;
  for (const ProgramCollective& one : spec.traffic.program->collectives) {
    if (one.pattern == Pattern::kBarrier) return "a barrier is the host's: a graph has none";
    if (by != "ccl")
      return "collectives by " + by + " are the host's: a graph has those of ccl, as by --collectives ccl";
  }
  for (const ProgramStep& step : spec.traffic.program->steps) {
    if (step.kind == ProgramKind::kSend || step.kind == ProgramKind::kReceive) {
      return "messages are the host's: a graph has copies, emulated kernels and collectives";
    }
    if (step.kind == ProgramKind::kCompute && step.queue < 0)
      return "compute is the host's: a graph has `work` in queues";
  }
  return "";
}

class Application final : public CaseOperation {
 public:
  Application(Transport& transport, const RankContext& context, const CaseSpec& spec)
      : CaseOperation(context, without_program(spec)),
        messages_(&transport),
        as_graph_(spec.mechanism.variant == kGraph),
        program_(spec.traffic.program),
        collectives_(spec.mechanism.collectives.empty() ? spec.mechanism.transport : spec.mechanism.collectives),
        progress_(progress_of(transport, collectives_.transport(), context)) {}

  void prepare() override {
    passing_on([&] {
      allocate();
      connect();
      collectives_.prepare(context(), spec(), *program_, progress_);
      times_.allocate();
      if (as_graph_) capture();
      group().barrier(progress_, Waiting::kSleep);
    });
  }

  void fill(std::uint64_t seed) override {
    times_.keep_spans();
    for (const ProgramArrival& one : program_->arrivals) data_->poison(target_, piece_of(one), seed);
    data_->fill(source_, {0, program_->source_bytes, rank(), 0, false}, false, seed);
    copies_->fill(*data_, seed);
    collectives_.fill(seed);
  }

  void post() override {
    if (under_way_) complete();  // an iteration begins where the one before has ended
    under_way_ = true;
    passing_on([&] {
      for (FlowEnd& flow : flows_) flow.messages = 0;
      times_.begin_iteration();
      if (as_graph_) {
        runtime().launch_graph(graph_.handle(), copying_.handle());
      } else {
        for_each_step(*program_, [this](const ProgramStep& step) { begin(step); });
        start_messages();
      }
    });
  }

  void complete() override {
    if (!under_way_) return;
    passing_on([&] {
      if (as_graph_) {
        copying_.synchronize();
        return times_.spend(kOnSyncs);
      }
      wait();
      synchronize_all();
    });
    times_.end_iteration();
    under_way_ = false;
  }

  VerifyResult verify(std::uint64_t seed) override {
    VerifyResult result;
    for (const ProgramArrival& one : program_->arrivals) data_->check(target_, piece_of(one), seed, result);
    copies_->check(*data_, seed, result);
    passing_on([&] { collectives_.verify(seed, result); });
    return result;
  }

  void release() noexcept override {
    graph_ = Graph();
    fork_ = Event();
    collectives_.release();
    completing_.clear();
    unstarted_ = nullptr;
    flows_.clear();
    channels_.clear();
    queues_.clear();
    copying_ = Stream();
    try {
      group().barrier(progress_, Waiting::kSleep);  // no peer's handle is open when a buffer is freed
      collectives_.free_communicators(context());
    } catch (const Error&) {  // a peer that failed, or the library is failing already
      group().leave();
    }
    collectives_.clear();
    messages_group_.reset();
    source_ = Buffer();
    target_ = Buffer();
    copies_.reset();
    data_.reset();
  }

  int lane() const override { return 0; }
  Progress progress() const override { return progress_; }
  StepReport step_report(std::size_t iterations) const override { return times_.report(iterations); }

 private:
  struct FlowEnd {
    ProgramFlow flow;
    Channel* channel = nullptr;
    int messages = 0;  // of this iteration
    bool pending = false;
  };
  struct Queue {
    Stream stream;
    Event event;
  };

  // What its messages and collectives are cases of.
  static CaseSpec without_program(CaseSpec spec) {
    spec.traffic.program.reset();
    spec.jobs.loads.clear();
    if (spec.mechanism.variant == kGraph) spec.mechanism.variant.clear();
    return spec;
  }
  static Progress progress_of(Transport& messages, Transport& collectives, const RankContext& context) {
    Progress progress = messages.progress(context);
    return progress ? progress : collectives.progress(context);  // one MPI library, so one of the two will do
  }

  // What fails here, ranks that wait in a group of a collective's must hear of too.
  template <typename Body>
  void passing_on(const Body& body) {
    try {
      body();
    } catch (const std::exception& error) {
      if (messages_group_ != nullptr) messages_group_->begin_abort(error);
      collectives_.begin_abort(error);
      throw;
    }
  }

  void allocate() {
    agreeing(group(), progress_, [&] {
      data_.emplace(runtime(), device(), traffic(), ranks());
      const auto lend = [&](MemoryKind kind, std::size_t bytes, const AllocateOptions& options) {
        return bytes == 0 ? Buffer() : messages_->make_buffer(context(), spec(), kind, bytes, options);
      };
      source_ = lend(spec().places.source.kind, program_->source_bytes, spec().places.source.options);
      target_ = lend(spec().places.target.kind, program_->target_bytes, spec().places.target.options);
      copying_ = Stream(runtime(), device());
      for (int queue = 0; queue < program_->queues; ++queue) {
        queues_.push_back({Stream(runtime(), device()), Event(runtime(), device())});
      }
    });
    by_turns(context(), kernels_are_tried(runtime()), [&] { copies_.emplace(context(), spec(), *program_); });
  }

  void connect() {
    std::vector<int> everyone(static_cast<std::size_t>(ranks()));
    std::iota(everyone.begin(), everyone.end(), 0);
    messages_group_ = group().subset(everyone);  // with flags that no collective uses
    RankContext of_messages = context();
    of_messages.group = messages_group_.get();
    Flows flows;
    for (const ProgramFlow& one : program_->flows) {
      const bool sends = one.source == rank();
      flows.add(
          {one.source, one.target, sends ? &source_ : nullptr, sends ? nullptr : &target_, one.stride, one.slots});
    }
    channels_ = messages_->connect(of_messages, spec(), flows);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      flows_.push_back({program_->flows[i], channels_[i].get()});
    }
    for (std::size_t i = 0; i < flows.size(); ++i) completing_.push_back(i);
    std::stable_partition(completing_.begin(), completing_.end(),
                          [&](std::size_t i) { return flows_[i].channel->completes_first(); });
  }

  static Piece piece_of(const ProgramArrival& one) {
    return {one.offset, one.bytes, one.source, one.source_offset, false};
  }

  // --- as a graph: what the host waits for, the stream waits for on which the graph is launched

  void capture() {
    // Libraries connect ranks when they first need it, which no graph may hold.
    times_.begin_iteration();
    for_each_step(*program_, [this](const ProgramStep& step) { begin(step); });
    wait();
    synchronize_all();
    fork_ = Event(runtime(), device());
    graph_ = captured(runtime(), device(), copying_.handle(), [&] {
      for (const Queue& queue : queues_) follow(queue.stream.handle(), copying_.handle());
      for_each_step(*program_, [this](const ProgramStep& step) { keep(step); });
      join_begun();
      for (const Queue& queue : queues_) follow(copying_.handle(), queue.stream.handle());
    });
  }

  // What `later` gets from now on waits for what `sooner` has now.
  void follow(StreamHandle later, StreamHandle sooner) {
    runtime().record(fork_.handle(), sooner);
    runtime().wait(later, fork_.handle());
  }

  void join(ApplicationCollective& one) {
    one.begun = false;
    for (const DeviceQueue& queue : one.operation->queues()) follow(copying_.handle(), queue.stream);
  }
  void join_begun() {
    for (ApplicationCollective& one : collectives_) {
      if (one.begun) join(one);
    }
  }

  void keep(const ProgramStep& step) {
    const auto which = static_cast<std::size_t>(step.which);
    switch (step.kind) {
      case ProgramKind::kCompute:
      case ProgramKind::kCopy: {
        const Stream& stream = stream_of(step);
        if (step.queue >= 0) follow(stream.handle(), copying_.handle());
        const auto within = static_cast<std::size_t>(CopyDirection::kWithinDevice);
        return copies_->queue(step.kind == ProgramKind::kCopy ? which : within, step, stream.handle());
      }
      case ProgramKind::kCollective: {
        ApplicationCollective& one = collectives_[which];
        for (const DeviceQueue& queue : one.operation->queues()) follow(queue.stream, copying_.handle());
        one.operation->post();
        one.begun = true;
        if (!program_->collectives[which].begun) join(one);
        return;
      }
      case ProgramKind::kWait:
        return join_begun();
      case ProgramKind::kSync:
        for (std::size_t queue = 0; queue < queues_.size(); ++queue) {
          if (step.queue >= 0 && queue != static_cast<std::size_t>(step.queue)) continue;
          follow(copying_.handle(), queues_[queue].stream.handle());
        }
        return;
      case ProgramKind::kAfter:
        return follow(queues_[static_cast<std::size_t>(step.queue)].stream.handle(), queues_[which].stream.handle());
      case ProgramKind::kSend:
      case ProgramKind::kReceive:
      case ProgramKind::kLoop:
      case ProgramKind::kEnd:
        return;
    }
  }

  // --- step by step

  void begin(const ProgramStep& step) {
    const auto which = static_cast<std::size_t>(step.which);
    if (step.kind != ProgramKind::kSend && step.kind != ProgramKind::kReceive) start_messages();
    switch (step.kind) {
      case ProgramKind::kCompute:
        if (step.queue < 0) {
          const std::int64_t until = times_.last_ns() + step.amount;
          while (now_ns() < until) pause_spin();
        } else {
          copy(static_cast<std::size_t>(CopyDirection::kWithinDevice), step);
        }
        return times_.spend(kOnCompute);
      case ProgramKind::kCopy:
        copy(which, step);
        return times_.spend(kOnCopies + which);
      case ProgramKind::kSend:
      case ProgramKind::kReceive: {
        FlowEnd& end = flows_[which];
        const std::size_t place = static_cast<std::size_t>(end.messages++ % end.flow.slots) * end.flow.stride;
        const auto bytes = static_cast<std::size_t>(step.amount);
        end.pending = true;
        if (step.kind == ProgramKind::kSend) {
          end.channel->put(end.flow.target_base + place, end.flow.source_base + place, bytes);
        } else {
          end.channel->get(end.flow.target_base + place, end.flow.source_base + place, bytes);
        }
        unstarted_ = end.channel;
        return times_.spend_on_posting();
      }
      case ProgramKind::kWait:
        return wait();
      case ProgramKind::kCollective: {
        ApplicationCollective& one = collectives_[which];
        if (!program_->collectives[which].begun) let_go();
        one.operation->post();
        one.begun = true;
        if (!program_->collectives[which].begun) one.complete();
        return times_.spend(one.spec.traffic.pattern == Pattern::kBarrier ? kOnBarriers : kOnCollectives);
      }
      case ProgramKind::kSync:
        if (step.queue < 0) return synchronize_all();
        queues_[static_cast<std::size_t>(step.queue)].stream.synchronize();
        return times_.spend(kOnSyncs);
      case ProgramKind::kAfter: {
        Queue& before = queues_[which];
        runtime().record(before.event.handle(), before.stream.handle());
        runtime().wait(queues_[static_cast<std::size_t>(step.queue)].stream.handle(), before.event.handle());
        return times_.spend(kOnSyncs);
      }
      case ProgramKind::kLoop:
      case ProgramKind::kEnd:
        return;
    }
  }

  // Messages between two other steps begin together, where the mechanism has them so.
  void start_messages() {
    if (unstarted_ == nullptr) return;
    unstarted_->start();
    unstarted_ = nullptr;
    times_.spend_on_posting();
  }

  const Stream& stream_of(const ProgramStep& step) const {
    return step.queue < 0 ? copying_ : queues_[static_cast<std::size_t>(step.queue)].stream;
  }

  void copy(std::size_t way, const ProgramStep& step) {
    copies_->queue(way, step, stream_of(step).handle());
    if (step.queue < 0) copying_.synchronize();
  }

  // What a peer may be waiting for, before this rank waits for it elsewhere: a library goes on with it by itself, but
  // that copies of this rank's own are over is told in their completion.
  void let_go() {
    for (FlowEnd& end : flows_) {
      if (!end.pending || end.flow.source != rank() || !end.channel->completes_first()) continue;
      end.pending = false;
      end.channel->complete(Completion::kLocal);
    }
    const std::string_view by = collectives_.transport().name();
    if (by == "mpi" || by == "ccl") return;
    for (ApplicationCollective& one : collectives_) one.complete();
  }

  void wait() {
    for (const std::size_t i : completing_) {
      if (!flows_[i].pending) continue;
      flows_[i].pending = false;
      flows_[i].channel->complete(Completion::kLocal);
    }
    times_.spend(kOnMessages);
    bool any = false;
    for (ApplicationCollective& one : collectives_) {
      any = any || one.begun;
      one.complete();
    }
    if (any) times_.spend(kOnCollectives);
  }

  void synchronize_all() {
    for (Queue& queue : queues_) queue.stream.synchronize();
    times_.spend(kOnSyncs);
  }

  Transport* messages_;
  bool as_graph_;
  std::shared_ptr<const Program> program_;
  std::optional<DataCheck> data_;
  Buffer source_;
  Buffer target_;
  std::optional<ApplicationCopies> copies_;
  Stream copying_;
  Graph graph_;
  Event fork_;
  std::vector<Queue> queues_;
  std::unique_ptr<Group> messages_group_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<FlowEnd> flows_;
  Channel* unstarted_ = nullptr;         // of messages that may not have begun
  std::vector<std::size_t> completing_;  // places in flows_
  ApplicationCollectives collectives_;
  Progress progress_;
  bool under_way_ = false;
  StepTimes times_;
};

}  // namespace

std::string why_not_application(const Transport& transport, const RankContext& context, const CaseSpec& spec) {
  if (spec.mechanism.variant != kGraph) return transport.supports(context, spec);
  CaseSpec plain = spec;
  plain.mechanism.variant.clear();
  std::string reason = transport.supports(context, plain);
  return reason.empty() ? why_no_graph(context, spec) : reason;
}

std::unique_ptr<Operation> make_application(Transport& transport, const RankContext& context, const CaseSpec& spec) {
  if (spec.traffic.program == nullptr) throw CallerError("the application has no program");
  check_program(*spec.traffic.program, context.size(), context.rank());
  if (spec.timing.cadence == Cadence::kGated || spec.timing.clock == ClockKind::kEvent) {
    throw Unsupported("an application is timed by the host's clock, from its first step to its last");
  }
  return std::make_unique<Application>(transport, context, spec);
}

}  // namespace linkgauge
