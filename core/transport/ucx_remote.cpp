// Puts and gets into the other rank's registered memory. Who starts them tells the other by a put of a counter behind
// them, ordered by a fence, so that this works between nodes too.
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "errors.h"
#include "group/progress.h"
#include "pattern/layout.h"
#include "transport/agreement.h"
#include "transport/one_sided.h"
#include "transport/ucx_channels.h"

namespace linkgauge::ucx {
namespace {

class Registered {
 public:
  // Throws RuntimeCallError where the library cannot register the memory.
  Registered(const RankWorker& worker, void* data, std::size_t bytes, int memory_type) : worker_(&worker) {
    MapParameters parameters;
    parameters.field_mask = MapParameters::kAddress | MapParameters::kLength | MapParameters::kMemoryType;
    parameters.address = data;
    parameters.length = bytes;
    parameters.memory_type = memory_type;
    worker.library().check(worker.calls().ucp_mem_map(worker.context(), &parameters, &memory_), "ucp_mem_map");
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  ~Registered() { (void)worker_->calls().ucp_mem_unmap(worker_->context(), memory_); }

  // What another rank needs to reach it, packed by UCX.
  std::vector<std::byte> key() const {
    void* packed = nullptr;
    std::size_t bytes = 0;
    worker_->library().check(worker_->calls().ucp_rkey_pack(worker_->context(), memory_, &packed, &bytes),
                             "ucp_rkey_pack");
    std::vector<std::byte> key(bytes);
    std::memcpy(key.data(), packed, bytes);
    worker_->calls().ucp_rkey_buffer_release(packed);
    return key;
  }

 private:
  const RankWorker* worker_;
  Memory memory_ = nullptr;
};

// Another rank's memory through a connection.
class Reached {
 public:
  Reached(const RankWorker& worker, Endpoint endpoint, std::uint64_t address, const std::byte* packed)
      : calls_(&worker.calls()), address_(address) {
    worker.library().check(calls_->ucp_ep_rkey_unpack(endpoint, packed, &key_), "ucp_ep_rkey_unpack");
  }
  Reached(const Reached&) = delete;
  Reached& operator=(const Reached&) = delete;
  ~Reached() { calls_->ucp_rkey_destroy(key_); }

  std::uint64_t at(std::size_t offset) const { return address_ + offset; }
  RemoteKey key() const { return key_; }

 private:
  const Table* calls_;
  std::uint64_t address_;
  RemoteKey key_ = nullptr;
};

// A counter for each of a rank's flows, which the other rank writes, and what this rank last told of each.
struct Counters {
  static constexpr std::size_t kStride = 64 / sizeof(std::uint64_t);  // a cache line a counter
  Counters(const RankWorker& worker, std::size_t flows)
      : heard(kStride * (flows + 1)),
        told(kStride * (flows + 1)),
        memory(worker, heard.data(), heard.size() * sizeof heard.front(), kHostMemory) {}

  std::vector<std::atomic<std::uint64_t>> heard;
  std::vector<std::uint64_t> told;
  Registered memory;
};

// What the channels of one operation on this rank have registered.
struct Exposed {
  std::shared_ptr<Connections> connections;
  std::shared_ptr<Counters> counters;
  std::map<const Buffer*, std::unique_ptr<Registered>> buffers;

  Exposed() = default;
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;
  // A peer that has not heard that all is over may still write its counter.
  ~Exposed() { connections->worker().retire(std::move(counters)); }
};

class RemoteChannel final : public OneSidedChannel {
 public:
  RemoteChannel(const RankContext& context, const Flow& flow, Ends ends, std::shared_ptr<Exposed> exposed,
                std::size_t place)
      : OneSidedChannel(context, ends),
        exposed_(std::move(exposed)),
        worker_(&exposed_->connections->worker()),
        calls_(&worker_->calls()),
        puts_(ends.sender_starts),
        endpoint_(exposed_->connections->endpoint(ends.source ? flow.target : flow.source)),
        own_(ends.source ? flow.source_buffer->at(0) : flow.target_buffer->at(0)),
        heard_(&exposed_->counters->heard[Counters::kStride * place]),
        told_(&exposed_->counters->told[Counters::kStride * place]),
        tally_(worker_->tally()),
        request_(RankWorker::request_for(tally_)) {
    if (alone() && !puts_) own_ = flow.target_buffer->at(0);
  }
  RemoteChannel(const RemoteChannel&) = delete;
  RemoteChannel& operator=(const RemoteChannel&) = delete;
  // What this rank told last must have come before the operation's ranks meet to give their memory back.
  ~RemoteChannel() override {
    try {
      if (!exposed_->connections->group().aborted()) flush();
    } catch (const Error&) {  // a peer that failed; it is told elsewhere
    }
    if (tally_->under_way != 0) worker_->mark_broken();
    worker_->give_back(tally_);
  }
  void reach(std::unique_ptr<Reached> buffer, std::unique_ptr<Reached> counter) {
    buffer_ = std::move(buffer);
    their_counter_ = std::move(counter);
  }

 private:
  void start(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    if (puts_) {
      worker_->count(calls_->ucp_put_nbx(endpoint_, own_ + source_offset, bytes, buffer_->at(target_offset),
                                         buffer_->key(), &request_),
                     tally_, "ucp_put_nbx");
    } else {
      worker_->count(calls_->ucp_get_nbx(endpoint_, own_ + target_offset, bytes, buffer_->at(source_offset),
                                         buffer_->key(), &request_),
                     tally_, "ucp_get_nbx");
    }
  }
  // Puts are over, both here and there, when what tell() puts behind them is.
  void finish() override {
    if (puts_ && !alone()) return;
    flush();
  }
  void tell(std::uint64_t messages) override {
    wait();  // the last one may be read from here until it is over
    *told_ = messages;
    if (starts() && puts_) worker_->library().check(calls_->ucp_worker_fence(worker_->get()), "ucp_worker_fence");
    worker_->count(
        calls_->ucp_put_nbx(endpoint_, told_, sizeof *told_, their_counter_->at(0), their_counter_->key(), &request_),
        tally_, "ucp_put_nbx");
    if (starts()) flush();
  }
  void await(std::uint64_t messages) override {
    worker_->drive_until(exposed_->connections->group(),
                         [&] { return heard_->load(std::memory_order_acquire) >= messages; });
  }
  void flush() {
    worker_->count(calls_->ucp_ep_flush_nbx(endpoint_, &request_), tally_, "ucp_ep_flush_nbx");
    wait();
  }
  void wait() { worker_->wait(exposed_->connections->group(), *tally_, puts_ ? "a put of UCX" : "a get of UCX"); }

  std::shared_ptr<Exposed> exposed_;
  RankWorker* worker_;
  const Table* calls_;
  bool puts_;
  Endpoint endpoint_;
  std::byte* own_;
  std::atomic<std::uint64_t>* heard_;
  std::uint64_t* told_;
  Tally* tally_;
  RequestParameters request_;
  std::unique_ptr<Reached> buffer_;         // the other rank's; nullptr at the end that does not start the copies
  std::unique_ptr<Reached> their_counter_;  // nullptr where one rank is both ends
};

// What a rank says of each of its flows, to the rank at the other end.
struct Said {
  std::int32_t source = 0;
  std::int32_t target = 0;
  std::uint64_t buffer = 0;  // addresses
  std::uint64_t counter = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t counter_key_bytes = 0;
};

void append(std::vector<std::byte>& bytes, const void* data, std::size_t count) {
  const auto* const begin = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), begin, begin + count);
}

// One rank's word of its end of a flow, in what that rank exchanged.
struct Heard {
  Said said;
  const std::byte* key = nullptr;
  const std::byte* counter_key = nullptr;
};
std::vector<Heard> read(const std::vector<std::byte>& bytes) {
  std::vector<Heard> heard;
  for (std::size_t at = 0; at < bytes.size();) {
    Heard one;
    std::memcpy(&one.said, &bytes[at], sizeof one.said);
    one.key = &bytes[at] + sizeof one.said;
    one.counter_key = one.key + one.said.key_bytes;
    at += sizeof one.said + one.said.key_bytes + one.said.counter_key_bytes;
    heard.push_back(one);
  }
  return heard;
}

}  // namespace

std::vector<std::unique_ptr<Channel>> remote_memory_channels(const RankContext& context, const CaseSpec& spec,
                                                             const std::vector<Flow>& flows,
                                                             const std::shared_ptr<Connections>& connections) {
  const bool puts = spec.variant != "get";
  const RankWorker& worker = connections->worker();
  const auto exposed = std::make_shared<Exposed>();
  exposed->connections = connections;
  std::vector<std::byte> mine;
  std::string reason;
  try {
    exposed->counters = std::make_shared<Counters>(worker, flows.size());
    const std::vector<std::byte> counter_key = exposed->counters->memory.key();
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const Flow& flow = flows[i];
      const Buffer* const buffer = puts ? flow.target_buffer : flow.source_buffer;
      std::vector<std::byte> key;
      if (buffer != nullptr) {
        std::unique_ptr<Registered>& known = exposed->buffers[buffer];
        if (!known) {
          known = std::make_unique<Registered>(worker, buffer->data(), buffer->size(),
                                               memory_type_of(*context.runtime, buffer->kind()));
        }
        key = known->key();
      }
      const Said said{flow.source,
                      flow.target,
                      buffer == nullptr ? 0 : reinterpret_cast<std::uint64_t>(buffer->data()),
                      reinterpret_cast<std::uint64_t>(&exposed->counters->heard[Counters::kStride * i]),
                      key.size(),
                      counter_key.size()};
      append(mine, &said, sizeof said);
      append(mine, key.data(), key.size());
      append(mine, counter_key.data(), counter_key.size());
    }
  } catch (const RuntimeCallError& error) {
    reason = error.what();
  }
  const Progress progress =
      ProgressOfAnyThread{[] {}, [&worker] { (void)worker.calls().ucp_worker_progress(worker.get()); }};
  agree_or_throw(*context.group, reason, progress);
  const auto all = context.group->exchange(mine, progress);
  std::vector<std::unique_ptr<Channel>> channels(flows.size());
  std::map<std::pair<int, int>, std::size_t> numbers;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const Flow& flow = flows[i];
    const OneSidedChannel::Ends ends{flow.source == context.rank(), flow.target == context.rank(), puts,
                                     reads_what_arrives(spec.pattern)};
    std::size_t number = numbers[{flow.source, flow.target}]++;
    const int peer = ends.source ? flow.target : flow.source;
    auto channel = std::make_unique<RemoteChannel>(context, flow, ends, exposed, i);
    // The flows from one rank to another come in one order on both.
    for (const Heard& heard : read(all[static_cast<std::size_t>(peer)])) {
      if (heard.said.source != flow.source || heard.said.target != flow.target || number-- != 0) continue;
      const bool starts = puts ? ends.source : ends.target;
      Endpoint const endpoint = connections->endpoint(peer);
      channel->reach(starts ? std::make_unique<Reached>(worker, endpoint, heard.said.buffer, heard.key) : nullptr,
                     peer == context.rank()
                         ? nullptr
                         : std::make_unique<Reached>(worker, endpoint, heard.said.counter, heard.counter_key));
      break;
    }
    channels[i] = std::move(channel);
  }
  return channels;
}

}  // namespace linkgauge::ucx
