// Long: buffers and calls of one library, whose rules for grouping and ending them hold for all three.
//
// NCCL, RCCL and, on host devices, oneCCL: collectives of the library's own, grouped sends and receives where it has no
// call for the pattern.
//
// Everything is queued on one stream of this rank's device; post() returns when the library has queued it, or, in the
// variant graph, when a graph that holds what the library queued once has been. Sends return
// on the sender when its buffer is free, so where the sender keeps the time a flag in shared memory says that the
// receiver has all bytes. One communicator for each set of devices, kept from case to case; a case with settings of its
// own has one of its own, made by these and given up when it has been measured. Variant device calls none of the
// library's operations: it takes the library's memory alone.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "errors.h"
#include "now.h"
#include "patterns.h"
#include "transport/agreement.h"
#include "transport/buffered_operation.h"
#include "transport/memory/kernel_allreduce.h"
#include "transport/nccl/api.h"
#include "transport/nccl/communicator.h"
#include "transport/nccl/config.h"
#include "transport/nccl/device.h"
#include "transport/one_sided.h"
#include "transport/peer_memory.h"
#include "transport/registry.h"

namespace linkgauge {

namespace {

constexpr char kGraph[] = "graph";
constexpr std::string_view kDevice = "device";
constexpr std::string_view kLsaBarrier = "lsa_barrier";
constexpr char kAllocated[] = "allocated";
constexpr char kRegistered[] = "registered";
constexpr char kSymmetric[] = "symmetric";
constexpr std::int64_t kReasonPatienceNs = 1'000'000'000;

// Variant device, and device+ with the words of a kernel's: our own kernels, on the pointers that NCCL gives.
bool by_own_kernels(const Mechanism& by) {
  return by.variant == kDevice || by.variant.starts_with(std::string(kDevice) + "+");
}

// The word by which the ranks of such a kernel meet by NCCL's own barriers, not by our flags.
std::size_t lsa_word(const Mechanism& by) { return by.variant.find(kLsaBarrier); }
bool meets_by_lsa(const Mechanism& by) { return lsa_word(by) != std::string::npos; }

// The case as transport kernel has it, of memory in windows.
CaseSpec of_kernels(const CaseSpec& spec) {
  CaseSpec result = spec;
  Mechanism& by = result.mechanism;
  if (meets_by_lsa(by)) by.variant.replace(lsa_word(by), kLsaBarrier.size(), kDeviceBarrier);
  by.transport = "kernel";
  by.variant.erase(0, kDevice.size() + 1);
  by.buffer = kSymmetric;
  return result;
}

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

class CclOperation final : public BufferedOperation {
 public:
  CclOperation(Transport& transport, const RankContext& context, const CaseSpec& spec, const ccl::Library& library)
      : BufferedOperation(transport, context, spec, LayoutRules{.own_block = uses_own_call(library, spec)}),
        library_(&library),
        own_call_(uses_own_call(library, spec)),
        type_(ccl::type_of(spec.traffic.datatype)),
        op_(ccl::op_of(spec.traffic.op)) {}

  void post() override {
    if (graph_.handle() != nullptr) return runtime().launch_graph(graph_.handle(), stream_.handle());
    queue_operation();
  }

  // Whether it is one call of the library's, which may have settings of its own.
  static bool takes_configuration(const ccl::Library& library, const CaseSpec& spec) {
    return uses_own_call(library, spec) || !of_messages(spec.traffic.pattern);
  }

  void complete() override {
    wait_for_stream();
    tell_and_await_arrival();
  }

  std::vector<DeviceQueue> queues() const override {
    if (library_->blocks()) return {};
    return {{stream_.handle(), context().device()}};
  }

 private:
  void queue_operation() {
    if (traffic().pattern == Pattern::kPingpong) return post_pingpong();
    if (own_call_) return post_blocks();
    if (is_messages()) return post_messages();
    post_collective();
  }

  bool is_messages() const { return of_messages(traffic().pattern); }
  static bool of_messages(Pattern pattern) {
    return traits_of(pattern).kind == PatternKind::kMessages || pattern == Pattern::kAlltoall ||
           pattern == Pattern::kAlltoallv || pattern == Pattern::kGather || pattern == Pattern::kScatter;
  }

  struct Message {
    int peer;
    std::size_t offset;
    std::size_t bytes;
  };

  static bool uses_own_call(const ccl::Library& library, const CaseSpec& spec) {
    return spec.mechanism.algorithm != "send_recv" && has_own_call(library.calls(), spec.traffic.pattern);
  }

  void connect() override {
    runtime().bind_thread(context().device());
    if (!mechanism().settings.empty()) {
      own_ = std::make_unique<ccl::Configuration>(*library_, mechanism().settings);
      of_call_ = own_->of_call();
    }
    communicator_ = CclCommunicator::of(*library_, context(), own_.get());
    stream_ = Stream(runtime(), context().device());
    source_data_ = source() == nullptr ? nullptr : source()->at(layout().sent.empty() ? 0 : layout().sent[0].offset);
    target_data_ =
        target() == nullptr ? nullptr : target()->at(layout().received.empty() ? 0 : layout().received[0].offset);
    plan_messages();
    register_buffers();
    if (of_call_ != nullptr) try_selection();
    if (mechanism().variant == kGraph) capture();
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
    runtime().begin_capture(stream_.handle());
    try {
      queue_operation();
    } catch (...) {
      try {
        graph_ = Graph(runtime(), runtime().end_capture(context().device(), stream_.handle()));
      } catch (const Error&) {  // the first failure is the one to tell of
      }
      throw;
    }
    graph_ = Graph(runtime(), runtime().end_capture(context().device(), stream_.handle()));
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
    stream_ = Stream();
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

  StreamHandle queue() const { return library_->blocks() ? nullptr : stream_.handle(); }
  std::size_t block() const { return block_bytes(traffic(), ranks()); }
  std::size_t place(int peer) const { return static_cast<std::size_t>(peer) * block(); }

  // Source first, on all ranks.
  void make_windows() {
    windows_.push_back(std::make_unique<CclWindow>(context(), communicator_, *source()));
    if (target() != source()) windows_.push_back(std::make_unique<CclWindow>(context(), communicator_, *target()));
  }

  void register_buffers() {
    if (mechanism().buffer == kSymmetric) return make_windows();
    if (mechanism().buffer != kRegistered) return;
    for (const Buffer* buffer : std::set<const Buffer*>{source(), target()}) {
      if (buffer == nullptr) continue;
      void* handle = nullptr;
      check(library_->calls().ncclCommRegister(communicator_->get(), buffer->data(), buffer->size(), &handle),
            "ncclCommRegister");
      registrations_.push_back(handle);
    }
  }

  void check(ccl::Result result, const char* call) { communicator_->check(result, call); }

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

  // A group that is left open when a call fails would take in whatever this thread calls next.
  void post_messages() {
    check(library_->calls().ncclGroupStart(), "ncclGroupStart");
    try {
      send_all(traffic().window);
      receive_all(traffic().window);
    } catch (const Error&) {
      (void)library_->calls().ncclGroupEnd();  // of what failed first is told
      throw;
    }
    check(library_->calls().ncclGroupEnd(), "ncclGroupEnd");
  }

  void send_all(int window) {
    for (int message = 0; message < window; ++message) {
      for (const Message& send : sends_) {
        check(library_->calls().ncclSend(source()->at(send.offset), send.bytes, kBytes, send.peer, communicator_->get(),
                                         queue()),
              "ncclSend");
      }
    }
  }

  void receive_all(int window) {
    for (int message = 0; message < window; ++message) {
      for (const Message& receive : receives_) {
        check(library_->calls().ncclRecv(target()->at(receive.offset), receive.bytes, kBytes, receive.peer,
                                         communicator_->get(), queue()),
              "ncclRecv");
      }
    }
  }

  // The library's call or, under settings of a call's own, the one that takes them.
  template <typename Plain, typename Configured, typename... Arguments>
  void call(const char* name, Plain plain, Configured configured, const Arguments&... arguments) {
    check(of_call_ == nullptr ? plain(arguments...) : configured(arguments..., of_call_), name);
  }

  void post_blocks() {
    const ccl::Table& calls = library_->calls();
    const void* from = source() == nullptr ? nullptr : source_data_;
    switch (traffic().pattern) {
      case Pattern::kAlltoall:
        return call("ncclAlltoAll", calls.ncclAlltoAll, calls.ncclAlltoAllConfig, from, target_data_, traffic().bytes(),
                    kBytes, communicator_->get(), queue());
      case Pattern::kGather:
        return call("ncclGather", calls.ncclGather, calls.ncclGatherConfig, from, target_data_, block(), kBytes,
                    traffic().root, communicator_->get(), queue());
      default: {
        // In place the root's block stays where it is.
        void* to = target_data_ == nullptr ? source()->at(place(rank())) : target_data_;
        return call("ncclScatter", calls.ncclScatter, calls.ncclScatterConfig, from, to, block(), kBytes,
                    traffic().root, communicator_->get(), queue());
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
        return call("ncclAllReduce", calls.ncclAllReduce, calls.ncclAllReduceConfig, source_data_, target_data_,
                    m / element, type_, op_, communicator, stream);
      case Pattern::kReduce:
        return call("ncclReduce", calls.ncclReduce, calls.ncclReduceConfig, source_data_, target_data_, m / element,
                    type_, op_, traffic().root, communicator, stream);
      case Pattern::kReduceScatter:
        return call("ncclReduceScatter", calls.ncclReduceScatter, calls.ncclReduceScatterConfig, source_data_,
                    target_data_, block() / element, type_, op_, communicator, stream);
      case Pattern::kAllgather:
        return call("ncclAllGather", calls.ncclAllGather, calls.ncclAllGatherConfig, source_data_, target_data_,
                    block(), kBytes, communicator, stream);
      case Pattern::kBroadcast: {
        // The root's own copy is no part of the pattern: it sends from where it is.
        void* to = target_data_ == nullptr ? source_data_ : target_data_;
        return call("ncclBroadcast", calls.ncclBroadcast, calls.ncclBroadcastConfig, source_data_, to, m, kBytes,
                    traffic().root, communicator, stream);
      }
      default:
        throw Unsupported("ccl has no way to do this pattern");
    }
  }

  void wait_for_stream() {
    int polls = 0;
    while (!runtime().done(stream_.handle())) {
      if (++polls % kPollsPerAbortCheck != 0) continue;
      check_state();
      end_if_aborted();
    }
    // An operation that the library gave up ends the stream's work too. Asking costs some nanoseconds.
    check_state();
  }

  void check_state() {
    ccl::Result state = ccl::kSuccess;
    check(library_->calls().ncclCommGetAsyncError(communicator_->get(), &state), "ncclCommGetAsyncError");
    // The library may tell of another rank's failure before that rank has: its own reason is the one worth having.
    if (state == ccl::kRemoteError) await_reason();
    if (state != ccl::kInProgress) check(state, "an operation of NCCL");
  }

  void await_reason() {
    const std::int64_t until_ns = now_ns() + kReasonPatienceNs;
    while (!group().aborted() && now_ns() < until_ns) std::this_thread::yield();
    end_if_aborted();
  }

  void end_if_aborted() {
    if (!group().aborted()) return;
    communicator_->mark_broken();
    group().throw_if_aborted();
  }

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

  static constexpr ccl::Type kBytes = 1;  // ncclUint8: what is not reduced is bytes

  const ccl::Library* library_;
  bool own_call_;
  ccl::Type type_;
  ccl::Op op_;
  std::shared_ptr<CclCommunicator> communicator_;
  std::unique_ptr<ccl::Configuration> own_;   // of the case's settings
  const ccl::CallConfig* of_call_ = nullptr;  // its, where they say something of a call
  Stream stream_;
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

class CclTransport final : public Transport {
 public:
  std::string_view name() const override { return "ccl"; }
  bool begins_kernels(const Mechanism& by) const override {
    return !by_own_kernels(by) || kernel_variant(by.variant).stay.empty();
  }
  bool takes_settings() const override { return true; }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    const std::string_view runtime = context.runtime->name();
    const bool on_host = runtime == "host";
    if (runtime != "cuda" && runtime != "hip" && !on_host)
      return "ccl moves data between GPUs or host devices: these are " + std::string(runtime) + " devices";
    if (on_host) {
      if (std::string reason = why_not_oneccl(context, spec); !reason.empty()) return reason;
    }
    std::map<int, int> ranks_of;  // each node has a device of that ordinal
    for (const int device : context.device_of_rank) {
      if (!on_host && ++ranks_of[device] > context.group->node_count()) {
        return "NCCL refuses two ranks on one device: use --ranks-per-device 1";
      }
    }
    if (spec.places.source.kind != MemoryKind::kDevice || spec.places.target.kind != MemoryKind::kDevice) {
      return "ccl is measured on device memory only";
    }
    if (spec.traffic.pattern == Pattern::kBidirectional && context.size() == 1) {
      return "ccl sends one message at a time to its own rank: both ways inside one device are another transport's";
    }
    if (traits_of(spec.traffic.pattern).side_by_side) {
      return std::string(to_string(spec.traffic.pattern)) + " needs an even number of ranks, 4 or more: two pairs";
    }
    if (spec.traffic.pattern == Pattern::kBarrier && !by_own_kernels(spec.mechanism)) {
      return "NCCL has no barrier of the host's; an allreduce of 4 bytes is what its users take, and kernels have one: "
             "--variant device";
    }
    if (traits_of(spec.traffic.pattern).kind == PatternKind::kDevice) {
      return "ccl moves data between ranks: " + std::string(to_string(spec.traffic.pattern)) + " is within one device";
    }
    const bool own_kernels = by_own_kernels(spec.mechanism);
    if (!spec.mechanism.variant.empty() && spec.mechanism.variant != kGraph && !own_kernels) {
      return "ccl has no variant '" + spec.mechanism.variant +
             "'; its variants are graph and device, which takes kernel's words and lsa_barrier, as device+pull";
    }
    if (spec.mechanism.variant == kGraph) {
      if (std::string reason = context.runtime->why_no_graphs(); !reason.empty()) return reason;
    }
    try {
      const ccl::Library& library = load(context);
      if (own_kernels) return why_not_own_kernels(context, library, spec);
      if (std::string reason = why_not_buffer(library, spec); !reason.empty()) return reason;
      if (std::string reason = why_not_settings(library, spec); !reason.empty()) return reason;
      return traits_of(spec.traffic.pattern).reduces ? why_not_datatype(context, library, spec.traffic.datatype)
                                                     : std::string();
    } catch (const Unsupported& reason) {
      return reason.what();
    }
  }

  // Only memory of the library's own making can be a symmetric window; nccl-tests takes it for all its buffers.
  Buffer make_buffer(const RankContext& context, const CaseSpec& spec, MemoryKind kind, std::size_t bytes,
                     const AllocateOptions& options) const override {
    if (spec.mechanism.buffer != kSymmetric && spec.mechanism.buffer != kAllocated)
      return Transport::make_buffer(context, spec, kind, bytes, options);
    context.runtime->bind_thread(context.device());
    const ccl::Library& library = load(context);
    void* memory = nullptr;
    library.check(library.calls().ncclMemAlloc(&memory, bytes), "ncclMemAlloc", nullptr, context.device());
    return Buffer(memory, context.device(), kind, bytes,
                  [free_memory = library.calls().ncclMemFree](void* given) { (void)free_memory(given); });
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext&, const CaseSpec&, const Flows&) override {
    throw Unsupported("ccl brings its own operations");
  }

  // A window is all ranks' at once: each exposes one buffer to all others, or none does.
  std::vector<PeerBuffer> peers(const RankContext& context, const CaseSpec& /*spec*/, const Flows& flows,
                                ExposedEnd end) override {
    const Buffer* exposed = nullptr;
    for (const Flow& flow : flows) {
      const Buffer* const buffer = end == ExposedEnd::kTarget ? flow.target_buffer : flow.source_buffer;
      if ((end == ExposedEnd::kTarget ? flow.target : flow.source) == context.rank()) exposed = buffer;
    }
    std::vector<PeerBuffer> result(flows.size());
    if (exposed == nullptr) return result;
    const auto window = std::make_shared<CclWindow>(context, CclCommunicator::of(load(context), context), *exposed);
    agreeing(*context.group, {}, [&] {
      for (std::size_t i = 0; i < flows.size(); ++i) {
        const int owner = end == ExposedEnd::kTarget ? flows[i].target : flows[i].source;
        if (owner != context.rank()) result[i] = {window->at(owner), context.device_of(owner), window, exposed->size()};
      }
    });
    return result;
  }

  std::unique_ptr<Operation> collective(const RankContext& context, const CaseSpec& spec) override {
    if (spec.traffic.pattern == Pattern::kBarrier) return make_lsa_barrier(*this, context, spec, load(context));
    if (meets_by_lsa(spec.mechanism)) return make_lsa_allreduce(*this, context, of_kernels(spec), load(context));
    if (by_own_kernels(spec.mechanism)) return make_kernel_allreduce(*this, context, of_kernels(spec));
    return std::make_unique<CclOperation>(*this, context, spec, load(context));
  }

  Progress progress(const RankContext&) override { return {}; }

 private:
  // What oneCCL's CPU library, which has no streams, does not do (2022.2).
  static std::string why_not_oneccl(const RankContext& context, const CaseSpec& spec) {
    if (context.size() > 1 && context.group->one_process())
      return "oneCCL's ranks are processes of their own: leave out --threads";
    if (!spec.mechanism.variant.empty()) return "oneCCL on the CPU has no variant: its calls are done when they return";
    if (spec.timing.clock == ClockKind::kEvent)
      return "oneCCL on the CPU has no stream to take times on: leave out --clock";
    if (!spec.mechanism.buffer.empty() && spec.mechanism.buffer != "plain")
      return "oneCCL on the CPU takes plain buffers only";
    if (traits_of(spec.traffic.pattern).reduces && spec.traffic.op == ReduceOp::kAvg)
      return "oneCCL on the CPU has no average";
    return "";
  }

  static std::string why_not_datatype(const RankContext& context, const ccl::Library& library, Datatype datatype) {
    if (std::string reason = ccl::supports_datatype(library, datatype); !reason.empty()) return reason;
    if (library.product() != ccl::Product::kNccl || !ccl::is_fp8(datatype)) return "";
    for (const int device : context.device_of_rank) {
      constexpr std::string_view kPrefix = "sm_";
      constexpr int kFirst = 90;  // NCCL 2.28, enqueue.cc: "FP8 reduction support begins with sm90 capable devices."
      const std::string architecture = context.runtime->describe(device).architecture;
      if (architecture.rfind(kPrefix, 0) != 0 || std::atoi(architecture.c_str() + kPrefix.size()) >= kFirst) continue;
      return "NCCL reduces 8-bit floating point from sm_90 on: device " + std::to_string(device) + " is " +
             architecture;
    }
    return "";
  }

  static std::string why_not_own_kernels(const RankContext& context, const ccl::Library& library,
                                         const CaseSpec& spec) {
    const Mechanism& by = spec.mechanism;
    const ccl::Table& calls = library.calls();
    if (calls.ncclGetPeerDevicePointer == nullptr || calls.ncclCommWindowRegister == nullptr ||
        calls.ncclMemAlloc == nullptr) {
      return std::string(library.name()) + " " + library.version() +
             " gives no pointers to other ranks' memory: NCCL 2.29 or newer is needed";
    }
    if (context.group->node_count() > 1) return "variant device is of one node";
    if (spec.traffic.pattern == Pattern::kBarrier) {
      if (by.variant != kDevice) return "the barrier of variant device takes no further word";
      return why_not_lsa(context, library);
    }
    if (spec.traffic.pattern != Pattern::kAllreduce || by.algorithm.empty()) {
      return "variant device is a barrier, or an allreduce by our own kernels: --pattern allreduce --algorithm "
             "one_shot "
             "or two_shot";
    }
    if (meets_by_lsa(by)) {
      if (std::string reason = why_not_lsa(context, library); !reason.empty()) return reason;
    }
    if (!by.buffer.empty()) return "variant device has buffers of NCCL's, in symmetric windows; leave --buffer out";
    if (!by.settings.empty()) return "settings are of NCCL's own kernels; leave them out with variant device";
    const CaseSpec of_kernel = of_kernels(spec);
    if (!kernel_variant(of_kernel.mechanism.variant).known)
      return "variant device takes kernel's words, not '" + by.variant + "'";
    return why_not_kernel_allreduce(context, of_kernel);
  }

  static std::string why_not_settings(const ccl::Library& library, const CaseSpec& spec) {
    if (spec.mechanism.settings.empty()) return "";
    const ccl::Configuration own(library, spec.mechanism.settings);  // which says what the library lacks
    if (own.of_call() == nullptr || CclOperation::takes_configuration(library, spec)) return "";
    return "NCCL_ALGO, NCCL_PROTO and algSelection are settings of collectives' calls: " +
           std::string(to_string(spec.traffic.pattern)) + " is sends and receives here";
  }

  static std::string why_not_buffer(const ccl::Library& library, const CaseSpec& spec) {
    const ccl::Table& calls = library.calls();
    const std::string product = (library.rccl() ? "RCCL " : "NCCL ") + library.version();
    if (spec.mechanism.buffer.empty() || spec.mechanism.buffer == "plain") return "";
    if (spec.mechanism.buffer == kRegistered) {
      if (calls.ncclCommRegister != nullptr && calls.ncclCommDeregister != nullptr) return "";
      return product + " cannot register buffers: NCCL 2.19 or newer is needed";
    }
    const bool allocates = calls.ncclMemAlloc != nullptr && calls.ncclMemFree != nullptr;
    if (spec.mechanism.buffer == kAllocated)
      return allocates ? "" : product + " has no memory of its own to give: NCCL 2.19 or newer is needed";
    if (spec.mechanism.buffer != kSymmetric)
      return "ccl knows buffer = plain, allocated, registered or symmetric, not '" + spec.mechanism.buffer + "'";
    if (!allocates || calls.ncclCommWindowRegister == nullptr || calls.ncclCommWindowDeregister == nullptr)
      return product + " has no symmetric windows: NCCL 2.27 or newer is needed";
    // A window is made by all ranks together, with buffers of one size.
    if (spec.traffic.pattern == Pattern::kAllreduce || spec.traffic.pattern == Pattern::kAllgather ||
        spec.traffic.pattern == Pattern::kReduceScatter || spec.traffic.pattern == Pattern::kAlltoall) {
      return "";
    }
    return "symmetric windows are for allreduce, allgather, reduce_scatter and alltoall, where every rank has both "
           "buffers";
  }

  static const ccl::Library& load(const RankContext& context) {
    return ccl::Library::load(ccl::product_of(context.runtime->name()), context.libraries.ccl,
                              context.libraries.folders);
  }
};

}  // namespace

std::unique_ptr<Transport> make_ccl_transport() { return std::make_unique<CclTransport>(); }

}  // namespace linkgauge
