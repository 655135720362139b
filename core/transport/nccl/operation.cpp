#include "transport/nccl/operation.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/patterns.h"
#include "transport/agreement.h"
#include "transport/buffered_operation.h"
#include "transport/nccl/communicator.h"
#include "transport/nccl/config.h"
#include "transport/one_sided.h"

namespace linkgauge {
namespace {

bool has_own_call(const ccl::Table& calls, Pattern pattern) {
  switch (pattern) {
    case Pattern::kAlltoall:
      return calls.ncclAlltoAll != nullptr;
    case Pattern::kGather:
      return calls.ncclGather != nullptr;
    case Pattern::kScatter:
      return calls.ncclScatter != nullptr;
    default:
      return false;
  }
}

bool uses_own_call(const ccl::Library& library, const CaseSpec& spec, const CclOptions& options) {
  return !options.send_recv && has_own_call(library.calls(), spec.traffic.pattern);
}

bool of_messages(Pattern pattern) {
  return traits_of(pattern).kind == PatternKind::kMessages || pattern == Pattern::kAlltoall ||
         pattern == Pattern::kAlltoallv || pattern == Pattern::kGather || pattern == Pattern::kScatter;
}

class CclOperation final : public BufferedOperation {
 public:
  CclOperation(Transport& transport, const RankContext& context, const CaseSpec& spec, const ccl::Library& library,
               const CclOptions& options)
      : BufferedOperation(transport, context, spec, LayoutRules{.own_block = uses_own_call(library, spec, options)}),
        library_(&library),
        options_(options),
        own_call_(uses_own_call(library, spec, options)),
        type_(ccl::type_of(spec.traffic.datatype)),
        op_(ccl::op_of(spec.traffic.op)) {}

  void post() override {
    if (graph_.handle() != nullptr) return runtime().launch_graph(graph_.handle(), stream_);
    queue_operation();
  }

  void complete() override {
    wait_for_stream();
    tell_and_await_arrival();
  }

  std::vector<DeviceQueue> queues() const override {
    if (library_->blocks()) return {};
    return {{stream_, context().device()}};
  }

 private:
  void queue_operation() {
    if (traffic().pattern == Pattern::kPingpong) return post_pingpong();
    if (own_call_) return post_blocks();
    if (is_messages()) return post_messages();
    post_collective();
  }

  bool is_messages() const { return of_messages(traffic().pattern); }

  struct Message {
    int peer;
    std::size_t offset;
    std::size_t bytes;
  };

  void connect() override {
    runtime().bind_thread(context().device());
    if (const std::string settings = ccl_settings(mechanism(), options_); !settings.empty()) {
      own_ = std::make_unique<ccl::Configuration>(*library_, settings);
      of_call_ = own_->of_call();
    }
    communicator_ = CclCommunicator::of(*library_, context(), own_.get());
    if (!context().one_stream) {
      own_stream_ = options_.high_priority ? Stream::of_high_priority(runtime(), context().device())
                                           : Stream(runtime(), context().device());
    }
    stream_ = context().one_stream ? communicator_->stream(runtime()) : own_stream_.handle();
    source_data_ = source() == nullptr ? nullptr : source()->at(layout().sent.empty() ? 0 : layout().sent[0].offset);
    target_data_ =
        target() == nullptr ? nullptr : target()->at(layout().received.empty() ? 0 : layout().received[0].offset);
    plan_messages();
    register_buffers();
    if (of_call_ != nullptr) try_selection();
    if (options_.graph) capture();
  }

  // What has no algorithm of the case's own choice is refused by each rank before it meets another.
  void try_selection() {
    std::string reason;
    try {
      queue_operation();
    } catch (const RuntimeCallError& error) {
      if (error.code() != ccl::kInvalidArgument && error.code() != ccl::kInvalidUsage) throw;
      reason = "NCCL " + library_->version() + " has no algorithm of " + mechanism().settings + " for this call";
    }
    agree_or_throw(group(), reason);
    wait_for_stream();
  }

  // One operation, kept. It is done once before, since the library connects ranks when they first need it.
  void capture() {
    queue_operation();
    wait_for_stream();
    graph_ = captured(runtime(), context().device(), stream_, [&] { queue_operation(); });
  }

  void disconnect() noexcept override {
    graph_ = Graph();
    if (communicator_) communicator_->abort_if_broken(group());
    for (void* handle : registrations_) {
      if (communicator_->get() != nullptr) library_->calls().ncclCommDeregister(communicator_->get(), handle);
    }
    registrations_.clear();
    windows_.clear();
    arrivals_.clear();
    stream_ = nullptr;
    own_stream_ = Stream();
    communicator_.reset();
  }

  // The schedule's transfers, for the patterns that are messages; and who must tell whom.
  void plan_messages() {
    const int me = rank();
    sends_.clear();
    receives_.clear();
    std::vector<Step> steps;
    if (is_messages()) steps = schedule_of(traffic(), ranks(), me).steps;
    if (ranks() == 1 && traffic().pattern == Pattern::kPingpong) steps.pop_back();  // there and back is one message
    const Timekeeper keeper = traits_of(traffic().pattern).timekeeper;
    Flows told;  // flows whose sender keeps the time
    for (const Step& step : steps) {
      if (step.source == me) sends_.push_back({step.target, step.source_offset, step.bytes});
      if (step.target == me) receives_.push_back({step.source, step.target_offset, step.bytes});
      const bool keeps = keeper == Timekeeper::kSender || keeper == Timekeeper::kLanes ||
                         (keeper == Timekeeper::kRoot && step.source == traffic().root);
      // Within one rank the stream's own completion says it all.
      if (keeps && step.source != step.target) told.add({step.source, step.target, nullptr, nullptr});
    }
    told_flows_ = told;
    arrivals_ = connect_flags(context(), told);
    messages_told_ = 0;
  }

  StreamHandle queue() const { return library_->blocks() ? nullptr : stream_; }
  std::size_t block() const { return block_bytes(traffic(), ranks()); }
  std::size_t place(int peer) const { return static_cast<std::size_t>(peer) * block(); }

  // Source first, on all ranks.
  void make_windows() {
    windows_.push_back(std::make_unique<CclWindow>(context(), communicator_, *source()));
    if (target() != source()) windows_.push_back(std::make_unique<CclWindow>(context(), communicator_, *target()));
  }

  void register_buffers() {
    if (options_.buffer == CclBuffer::kSymmetric) return make_windows();
    if (options_.buffer != CclBuffer::kRegistered) return;
    for (const Buffer* buffer : std::set<const Buffer*>{source(), target()}) {
      if (buffer == nullptr) continue;
      void* handle = nullptr;
      communicator_->run(library_->calls().ncclCommRegister, communicator_->get(), buffer->data(), buffer->size(),
                         &handle);
      registrations_.push_back(handle);
    }
  }

  void post_pingpong() {
    // Two groups: on each side the second waits for the first, by the order of the stream.
    const bool starter = rank() == 0;
    if (ranks() == 1) {  // there and back inside one device
      post_messages();
      return post_messages();
    }
    if (starter) send_all(1);
    receive_all(1);
    if (!starter) send_all(1);
  }

  void post_messages() {
    communicator_->grouped([&] {
      send_all(traffic().window);
      receive_all(traffic().window);
    });
  }
  void send_all(int window) {
    for (int message = 0; message < window; ++message) {
      for (const Message& send : sends_) communicator_->send(source()->at(send.offset), send.bytes, send.peer, queue());
    }
  }
  void receive_all(int window) {
    for (int message = 0; message < window; ++message) {
      for (const Message& receive : receives_)
        communicator_->receive(target()->at(receive.offset), receive.bytes, receive.peer, queue());
    }
  }

  // The library's call or, under settings of a call's own, the one that takes them.
  template <typename Plain, typename Configured, typename... Arguments>
  void call(const Plain& plain, const Configured& configured, const Arguments&... arguments) {
    communicator_->check(of_call_ == nullptr ? plain(arguments...) : configured(arguments..., of_call_), plain.name);
  }

  void post_blocks() {
    const ccl::Table& calls = library_->calls();
    const void* from = source() == nullptr ? nullptr : source_data_;
    switch (traffic().pattern) {
      case Pattern::kAlltoall:
        return call(calls.ncclAlltoAll, calls.ncclAlltoAllConfig, from, target_data_, traffic().bytes(), ccl::kBytes,
                    communicator_->get(), queue());
      case Pattern::kGather:
        return call(calls.ncclGather, calls.ncclGatherConfig, from, target_data_, block(), ccl::kBytes, traffic().root,
                    communicator_->get(), queue());
      default: {
        // In place the root's block stays where it is.
        void* to = target_data_ == nullptr ? source()->at(place(rank())) : target_data_;
        return call(calls.ncclScatter, calls.ncclScatterConfig, from, to, block(), ccl::kBytes, traffic().root,
                    communicator_->get(), queue());
      }
    }
  }

  void post_collective() {
    const ccl::Table& calls = library_->calls();
    const std::size_t m = traffic().bytes();
    const std::size_t element = size_of(traffic().datatype);
    ccl::Communicator communicator = communicator_->get();
    StreamHandle stream = queue();
    switch (traffic().pattern) {
      case Pattern::kAllreduce:
        return call(calls.ncclAllReduce, calls.ncclAllReduceConfig, source_data_, target_data_, m / element, type_, op_,
                    communicator, stream);
      case Pattern::kReduce:
        return call(calls.ncclReduce, calls.ncclReduceConfig, source_data_, target_data_, m / element, type_, op_,
                    traffic().root, communicator, stream);
      case Pattern::kReduceScatter:
        return call(calls.ncclReduceScatter, calls.ncclReduceScatterConfig, source_data_, target_data_,
                    block() / element, type_, op_, communicator, stream);
      case Pattern::kAllgather:
        return call(calls.ncclAllGather, calls.ncclAllGatherConfig, source_data_, target_data_, block(), ccl::kBytes,
                    communicator, stream);
      case Pattern::kBroadcast: {
        // The root's own copy is no part of the pattern: it sends from where it is.
        void* to = target_data_ == nullptr ? source_data_ : target_data_;
        return call(calls.ncclBroadcast, calls.ncclBroadcastConfig, source_data_, to, m, ccl::kBytes, traffic().root,
                    communicator, stream);
      }
      default:
        throw Unsupported("ccl has no way to do this pattern");
    }
  }

  void wait_for_stream() { communicator_->wait_for(runtime(), stream_, group()); }

  void tell_and_await_arrival() {
    ++messages_told_;
    for (std::size_t i = 0; i < arrivals_.size(); ++i) {
      const FlowFlags& flags = arrivals_[i];
      if (told_flows_[i].target == rank()) {
        flags.done->store(flags.done_base + messages_told_, std::memory_order_release);
      }
    }
    for (std::size_t i = 0; i < arrivals_.size(); ++i) {
      const FlowFlags& flags = arrivals_[i];
      if (told_flows_[i].source == rank()) {
        wait_for_flag(*flags.done, flags.done_base + messages_told_, group(), progress());
      }
    }
  }

  const ccl::Library* library_;
  CclOptions options_;
  bool own_call_;
  ccl::Type type_;
  ccl::Op op_;
  std::shared_ptr<CclCommunicator> communicator_;
  std::unique_ptr<ccl::Configuration> own_;   // of the case's settings
  const ccl::CallConfig* of_call_ = nullptr;  // its, where they say something of a call
  Stream own_stream_;                         // empty where the communicator's is shared
  StreamHandle stream_ = nullptr;
  void* source_data_ = nullptr;
  void* target_data_ = nullptr;
  std::vector<Message> sends_;
  std::vector<Message> receives_;
  Flows told_flows_;
  std::vector<FlowFlags> arrivals_;
  std::uint64_t messages_told_ = 0;
  std::vector<void*> registrations_;
  std::vector<std::unique_ptr<CclWindow>> windows_;
  Graph graph_;
};

}  // namespace

std::unique_ptr<Operation> make_ccl_operation(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                              const ccl::Library& library, const CclOptions& options) {
  return std::make_unique<CclOperation>(transport, context, spec, library, options);
}

bool takes_call_settings(const ccl::Library& library, const CaseSpec& spec, const CclOptions& options) {
  return uses_own_call(library, spec, options) || !of_messages(spec.traffic.pattern);
}

}  // namespace linkgauge
