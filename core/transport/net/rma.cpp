// Puts and gets into the other rank's registered memory. Who starts them tells the other by a put of a counter behind
// them, ordered after them, so that this works between nodes too.
#include <atomic>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/not_copied.h"
#include "base/wire.h"
#include "transport/agreement.h"
#include "transport/net/channels.h"
#include "transport/one_sided.h"

namespace linkgauge::nic {
namespace {

// For each of a rank's flows a counter that the other rank writes, and what this rank last told, which it writes there.
struct Counters {
  static constexpr std::size_t kStride = 64 / sizeof(std::uint64_t);  // a cache line a counter
  Counters(Worker& worker, std::size_t flows)
      : words(2 * kStride * (flows + 1)),
        memory(worker.registered({words.data(), words.size() * sizeof words.front(), MemoryType::kHost, -1})) {}

  static constexpr std::size_t heard(std::size_t flow) { return 2 * kStride * flow; }
  static constexpr std::size_t told(std::size_t flow) { return heard(flow) + kStride; }

  std::vector<std::atomic<std::uint64_t>> words;
  std::unique_ptr<Memory> memory;
};

// What the channels of one operation on this rank have registered.
struct Exposed : NotCopied {
  std::shared_ptr<Connections> connections;
  std::shared_ptr<Counters> counters;

  // A peer that has not heard that all is over may still write its counter.
  ~Exposed() { connections->worker().retire(std::move(counters)); }
};

class RemoteChannel final : public OneSidedChannel {
 public:
  RemoteChannel(const RankContext& context, const Flow& flow, Ends ends, std::shared_ptr<Exposed> exposed,
                std::size_t place)
      : RemoteChannel(context, flow, ends, std::move(exposed), place,
                      ends.source && (ends.sender_starts || !ends.target) ? *flow.source_buffer : *flow.target_buffer) {
  }
  // What this rank told last must have come before the operation's ranks meet to give their memory back.
  ~RemoteChannel() override {
    try {
      if (!exposed_->connections->group().aborted()) flush();
    } catch (const Error&) {  // a peer that failed; it is told elsewhere
    }
  }
  void reach(std::unique_ptr<Remote> buffer, std::unique_ptr<Remote> counter) {
    buffer_ = std::move(buffer);
    their_counter_ = std::move(counter);
  }

 private:
  RemoteChannel(const RankContext& context, const Flow& flow, Ends ends, std::shared_ptr<Exposed> exposed,
                std::size_t place, const Buffer& own)
      : OneSidedChannel(context, ends),
        exposed_(std::move(exposed)),
        puts_(ends.sender_starts),
        own_(own.at(0)),
        own_memory_(starts() ? exposed_->connections->memory_of(own) : nullptr),
        counters_(exposed_->counters->memory.get()),
        heard_(&exposed_->counters->words[Counters::heard(place)]),
        told_(&exposed_->counters->words[Counters::told(place)]),
        link_(exposed_->connections->link(flow.peer_of(context.rank()), own)) {}

  void start_copy(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    if (puts_) {
      link_->put(own_ + source_offset, bytes, own_memory_, *buffer_, target_offset);
    } else {
      link_->get(own_ + target_offset, bytes, own_memory_, *buffer_, source_offset);
    }
  }
  // Puts are over, both here and there, when what tell() puts behind them is.
  void finish() override {
    if (puts_ && !alone()) return;
    flush();
  }
  void tell(std::uint64_t messages) override {
    wait();  // the last one may be read from here until it is over
    told_->store(messages, std::memory_order_relaxed);
    if (starts() && puts_) link_->order();
    link_->put(told_, sizeof *told_, counters_, *their_counter_, 0);
    if (starts()) flush();
  }
  void await(std::uint64_t messages) override {
    exposed_->connections->worker().drive_until(exposed_->connections->group(),
                                                [&] { return heard_->load(std::memory_order_acquire) >= messages; });
  }
  void flush() {
    link_->flush();
    wait();
  }
  void wait() { link_->wait(puts_ ? "a put" : "a get"); }

  std::shared_ptr<Exposed> exposed_;
  bool puts_;
  std::byte* own_;
  const Memory* own_memory_;
  const Memory* counters_;
  std::atomic<std::uint64_t>* heard_;
  std::atomic<std::uint64_t>* told_;
  std::unique_ptr<Remote> buffer_;         // the other rank's; nullptr at the end that does not start the copies
  std::unique_ptr<Remote> their_counter_;  // nullptr where one rank is both ends
  std::unique_ptr<Link> link_;
};

// What a rank says of each of its flows, to the rank at the other end.
struct Said {
  std::int32_t source = 0;
  std::int32_t target = 0;
  std::int64_t ordinal = 0;
  std::uint64_t buffer = 0;  // addresses, as the other rank names them
  std::uint64_t counter = 0;
};

// One rank's word of its end of a flow, in what that rank exchanged.
struct Heard {
  Said said;
  Bytes key;
  Bytes counter_key;
};
std::vector<Heard> read(const Bytes& message) {
  std::vector<Heard> heard;
  WireReader reader(message);
  while (!reader.done()) heard.push_back({reader.value<Said>(), reader.bytes(), reader.bytes()});
  return heard;
}

}  // namespace

std::vector<std::unique_ptr<Channel>> remote_memory_channels(const RankContext& context, const CaseSpec& spec,
                                                             const Flows& flows,
                                                             const std::shared_ptr<Connections>& connections,
                                                             bool puts) {
  Worker& worker = connections->worker();
  const auto exposed = std::make_shared<Exposed>();
  exposed->connections = connections;
  WireWriter mine;
  std::string reason;
  try {
    exposed->counters = std::make_shared<Counters>(worker, flows.size());
    const Memory& counters = *exposed->counters->memory;
    const Bytes counter_key = counters.key();
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const Flow& flow = flows[i];
      const Buffer* const buffer = puts ? flow.target_buffer : flow.source_buffer;
      const Memory* const memory = buffer == nullptr ? nullptr : &connections->registered(*buffer);
      const Said said{flow.source, flow.target, flow.ordinal, memory == nullptr ? 0 : memory->address(),
                      counters.address() + Counters::heard(i) * sizeof(std::uint64_t)};
      mine.value(said).bytes(memory == nullptr ? Bytes{} : memory->key()).bytes(counter_key);
      // The other end's buffer, where messages need it registered here too.
      const Buffer* const other = puts ? flow.source_buffer : flow.target_buffer;
      if (other != nullptr) (void)connections->memory_of(*other);
    }
  } catch (const RuntimeCallError& error) {
    reason = error.what();
  }
  const Progress progress = [&worker] { (void)worker.progress(); };
  agree_or_throw(*context.group, reason, progress);
  const auto all = context.group->exchange(mine.message(), progress);
  std::vector<std::unique_ptr<Channel>> channels(flows.size());
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const Flow& flow = flows[i];
    const OneSidedChannel::Ends ends(context, spec, flow, puts);
    const int rank = flow.peer_of(context.rank());
    auto channel = std::make_unique<RemoteChannel>(context, flow, ends, exposed, i);
    for (const Heard& heard : read(all[static_cast<std::size_t>(rank)])) {
      const Said& said = heard.said;
      if (said.source != flow.source || said.target != flow.target || said.ordinal != flow.ordinal) continue;
      const bool starts = ends.starts();
      const Peer peer = connections->peer(rank);
      channel->reach(starts ? worker.reach(peer, said.buffer, heard.key) : nullptr,
                     rank == context.rank() ? nullptr : worker.reach(peer, said.counter, heard.counter_key));
      break;
    }
    channels[i] = std::move(channel);
  }
  return channels;
}

}  // namespace linkgauge::nic
