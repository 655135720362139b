#include "transport/nvshmem/channels.h"

#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "base/wire.h"
#include "transport/agreement.h"
#include "transport/nvshmem/kernels.h"
#include "transport/nvshmem/options.h"
#include "transport/one_sided.h"

namespace linkgauge::nvshmem {
namespace {

// An end of a flow, as its rank tells of it.
struct FlowEnd {
  std::int32_t source = 0;  // ranks of the case
  std::int32_t target = 0;
  std::int32_t ordinal = 0;
  std::int32_t at_target = 0;
  std::int64_t pe = 0;
  std::uint64_t offset = 0;  // of its buffer and, with signals, of its word, in what that PE lends
  std::uint64_t signal = 0;
};

// The same, as this rank's calls name it.
struct Place {
  std::byte* data;
  Signal* signal;
  int pe;
};

class StreamChannel final : public OneSidedChannel {
 public:
  StreamChannel(const RankContext& context, std::shared_ptr<Pe> pe, const FlowFlags& flags, Ends ends, Place own,
                Place other)
      : OneSidedChannel(context, flags, ends, {}),
        pe_(std::move(pe)),
        puts_(ends.sender_starts),
        own_(own),
        other_(other),
        device_(context.device()) {
    if (starts()) stream_ = linkgauge::Stream(*context.runtime, device_);
  }

  std::vector<DeviceQueue> queues() const override {
    if (!starts()) return {};
    return {{stream_.handle(), device_}};
  }

 private:
  void start_copy(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    if (puts_) {
      pe_->calls().nvshmemx_putmem_on_stream(other_.data + target_offset, own_.data + source_offset, bytes, other_.pe,
                                             stream_.handle());
    } else {
      pe_->calls().nvshmemx_getmem_on_stream(own_.data + target_offset, other_.data + source_offset, bytes, other_.pe,
                                             stream_.handle());
    }
  }
  void finish() override {
    if (puts_) pe_->calls().nvshmemx_quiet_on_stream(stream_.handle());  // a put alone says that the source may change
    stream_.synchronize();
  }

  std::shared_ptr<Pe> pe_;
  bool puts_;
  Place own_;
  Place other_;
  int device_;
  linkgauge::Stream stream_;  // of the end that starts the copies
};

// Each message brings its signal, and who waits does so on a stream, as NVSHMEM's programs do; so it works between
// nodes too. The target's word counts what has arrived, the source's what was read.
class SignalChannel : public Channel {
 public:
  SignalChannel(const RankContext& context, std::shared_ptr<Pe> pe, std::shared_ptr<Buffer> words,
                OneSidedChannel::Ends ends, Place own, Place other)
      : context_(context),
        pe_(std::move(pe)),
        words_(std::move(words)),
        ends_(ends),
        own_(own),
        other_(other),
        stream_(*context.runtime, context.device()) {}
  // No signal of this operation may come to the words of the next.
  ~SignalChannel() override {
    if (context_.group->aborted()) {
      end_waits();
    } else {
      pe_->calls().nvshmemx_quiet_on_stream(stream_.handle());
    }
  }

  void put(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    if (ends_.awaits_consumption && !alone()) await_messages();
    ++messages_;
    signals_ += signals_of(bytes);
    queue(target_offset, source_offset, bytes);
  }
  void get(std::size_t, std::size_t, std::size_t bytes) override {
    if (alone()) return;
    ++messages_;
    signals_ += signals_of(bytes);
  }
  void complete(Completion completion) override {
    flush();
    if (ends_.target) {
      await_messages();
    } else if (completion == Completion::kRemote) {
      pe_->calls().nvshmemx_quiet_on_stream(stream_.handle());
    }
    wait_for_stream(*context_.runtime, stream_.handle(), *context_.group);
  }
  void consumed() override {
    if (!ends_.awaits_consumption || alone()) return;
    pe_->calls().nvshmemx_signal_op_on_stream(other_.signal, 1, kAdd, other_.pe, stream_.handle());
  }
  bool completes_first() const override { return ends_.source; }
  std::vector<DeviceQueue> queues() const override {
    if (!ends_.source) return {};
    return {{stream_.handle(), context_.device()}};
  }

 protected:
  // What brings a message, and so many signals.
  virtual void queue(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) {
    pe_->calls().nvshmemx_putmem_signal_on_stream(other_.data + target_offset, own_.data + source_offset, bytes,
                                                  other_.signal, 1, kAdd, other_.pe, stream_.handle());
  }
  virtual Signal signals_of(std::size_t /*bytes*/) const { return 1; }
  virtual void flush() {}  // what was put and is not queued yet

  const RankContext& context() const { return context_; }
  const Pe& pe() const { return *pe_; }
  const OneSidedChannel::Ends& ends() const { return ends_; }
  const Place& own() const { return own_; }
  const Place& other() const { return other_; }
  StreamHandle stream() const { return stream_.handle(); }

 private:
  bool alone() const { return ends_.source && ends_.target; }
  // The word that this rank waits for; where it is both ends, the target's.
  Signal* awaited() const { return alone() ? other_.signal : own_.signal; }
  // At the target signals have come, at the source messages have been read.
  void await_messages() {
    const Signal due = ends_.target ? signals_ : messages_;
    pe_->calls().nvshmemx_signal_wait_until_on_stream(awaited(), kAtLeast, due, stream_.handle());
  }
  // What waits on the stream for a rank that failed would wait for ever.
  void end_waits() noexcept {
    constexpr Signal kAll = std::numeric_limits<Signal>::max() / 2;
    try {
      context_.runtime->copy_now(awaited(), context_.device(), &kAll, -1, sizeof kAll);
    } catch (const Error&) {  // the device is gone, and what waits there with it
    }
  }

  RankContext context_;
  std::shared_ptr<Pe> pe_;
  std::shared_ptr<Buffer> words_;  // of all channels that were connected together
  OneSidedChannel::Ends ends_;
  Place own_;
  Place other_;
  Signal messages_ = 0;
  Signal signals_ = 0;
  linkgauge::Stream stream_;
};

// Each message, or part of one, is put with its signal by a kernel of ours. The messages of a window that are alike
// are one kernel's, so that what is timed is how fast a kernel puts, not how fast a host launches.
class DeviceChannel final : public SignalChannel {
 public:
  DeviceChannel(const RankContext& context, const CaseSpec& spec, const Options& options, std::shared_ptr<Pe> pe,
                std::shared_ptr<Buffer> words, OneSidedChannel::Ends ends, Place own, Place other)
      : SignalChannel(context, std::move(pe), std::move(words), ends, own, other),
        scope_(options.scope),
        blocks_(spec.mechanism.blocks),
        most_(ends.awaits_consumption ? 1 : static_cast<std::uint64_t>(spec.traffic.window)) {}

 private:
  void queue(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    const Kernels::Put put{other().data + target_offset, own().data + source_offset, bytes, other().signal, other().pe};
    if (held_ > 0 && !alike(put, put_)) flush();
    put_ = put;
    if (++held_ == most_) flush();
  }
  Signal signals_of(std::size_t bytes) const override { return Kernels::parts_of(bytes, scope_, blocks_); }
  void flush() override {
    if (held_ == 0) return;
    pe().kernels().put(put_, held_, scope_, blocks_, stream());
    held_ = 0;
  }
  static bool alike(const Kernels::Put& one, const Kernels::Put& two) {
    return one.target == two.target && one.source == two.source && one.bytes == two.bytes;
  }

  Scope scope_;
  int blocks_;
  std::uint64_t most_;  // messages of one kernel
  Kernels::Put put_{};
  std::uint64_t held_ = 0;
};

// What a case's kernels are: as put by a flow's first message.
void tell_grid(const RankContext& context, const CaseSpec& spec, Scope scope, std::size_t bytes) {
  const std::uint64_t parts = Kernels::parts_of(bytes, scope, spec.mechanism.blocks);
  const auto messages = static_cast<std::uint64_t>(spec.traffic.window);
  const LaunchShape shape = Kernels::shape_of(messages * parts, bytes / parts, scope, spec.mechanism.blocks);
  context.choose("grid", shape.grid());
}

}  // namespace

std::vector<std::unique_ptr<Channel>> stream_channels(const RankContext& context, const CaseSpec& spec,
                                                      const Flows& flows, const std::shared_ptr<Pe>& pe) {
  using Key = std::tuple<int, int, int, bool>;
  const Options options = kVariants.of(spec.mechanism);
  const bool puts = options.way != Way::kGet;
  const bool device = options.device();
  const bool signals = options.signals();
  if (device) pe->load_kernels(context);
  std::shared_ptr<Buffer> words;
  agreeing(*context.group, {}, [&] {
    if (!signals || flows.empty()) return;
    const std::vector<Signal> zeros(2 * flows.size());
    const std::size_t bytes = zeros.size() * sizeof(Signal);
    words = std::make_shared<Buffer>(pe->take(bytes));
    context.runtime->copy_now(words->data(), context.device(), zeros.data(), -1, bytes);
  });
  std::vector<FlowEnd> mine;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    for (const bool at_target : {false, true}) {
      const Flow& flow = flows[i];
      if ((at_target ? flow.target : flow.source) != context.rank()) continue;
      const Buffer& buffer = at_target ? *flow.target_buffer : *flow.source_buffer;
      const std::size_t word = (2 * i + (at_target ? 1 : 0)) * sizeof(Signal);
      mine.push_back({flow.source, flow.target, flow.ordinal, at_target ? 1 : 0, pe->number(),
                      pe->offset_of(buffer.data()), words ? pe->offset_of(words->at(word)) : 0});
    }
  }
  std::map<Key, FlowEnd> ends_of;
  for (const std::vector<std::byte>& bytes : context.group->exchange(to_bytes(mine.data(), mine.size()), {})) {
    for (const FlowEnd& end : values_of<FlowEnd>(bytes)) {
      ends_of[{end.source, end.target, end.ordinal, end.at_target != 0}] = end;
    }
  }
  const std::vector<FlowFlags> flags = signals ? std::vector<FlowFlags>(flows.size()) : connect_flags(context, flows);
  std::vector<std::unique_ptr<Channel>> channels;
  std::string reason;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const Flow& flow = flows[i];
    const OneSidedChannel::Ends ends(context, spec, flow, puts);
    const auto place_of = [&](bool at_target) {
      const FlowEnd& end = ends_of.at({flow.source, flow.target, flow.ordinal, at_target});
      return Place{pe->at(end.offset), reinterpret_cast<Signal*>(pe->at(end.signal)), static_cast<int>(end.pe)};
    };
    const bool starts = ends.starts();
    const Place own = place_of(puts != starts);
    const Place other = place_of(puts == starts);
    if (starts) {
      const bool direct = pe->calls().nvshmem_ptr(other.data, other.pe) != nullptr;
      context.choose("ways", pe->way_to(pe->offset_of(other.data), other.pe));
      if (device) tell_grid(context, spec, options.scope, flow.bytes);
      if (puts && !device && !direct && spec.timing.clock == ClockKind::kEvent) {
        reason =
            "a stream's event says of what NVSHMEM's remote transport puts that its source may change, not that it "
            "has arrived: leave --clock event out";
      }
    }
    if (device) {
      channels.push_back(std::make_unique<DeviceChannel>(context, spec, options, pe, words, ends, own, other));
    } else if (signals) {
      channels.push_back(std::make_unique<SignalChannel>(context, pe, words, ends, own, other));
    } else {
      channels.push_back(std::make_unique<StreamChannel>(context, pe, flags[i], ends, own, other));
    }
  }
  agree_or_throw(*context.group, reason);
  return channels;
}

}  // namespace linkgauge::nvshmem
