#include "transport/memory/far_counters.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/not_copied.h"
#include "transport/agreement.h"
#include "transport/peer_memory.h"

namespace linkgauge {
namespace {

constexpr std::size_t kWordStride = 128;              // no word shares a line with another
constexpr int kMostFlows = Group::kFlagChannels / 2;  // from one rank to another, as on one node

// Of a rank's word for a flow with `peer`, which that rank is the source of or not.
std::size_t place_of(int peer, bool source, int ordinal) {
  return static_cast<std::size_t>((peer * 2 + (source ? 1 : 0)) * kMostFlows + ordinal) * kWordStride;
}

// What a rank tells on all of its flows is on its way on one stream, from words in memory that the device reads.
class Telling : NotCopied {
 public:
  explicit Telling(const RankContext& context)
      : runtime_(*context.runtime),
        device_(context.device()),
        words_(runtime_, device_, MemoryKind::kPinned, kWords * sizeof(std::uint64_t)),
        stream_(runtime_, device_) {}
  ~Telling() { stream_.end(); }  // the peers' memory is closed next

  // Queued and not waited for, as it lies within what is timed.
  void tell(std::byte* place, std::uint64_t messages) {
    const std::size_t word = told_++ % kWords;
    if (word == 0) stream_.synchronize();  // all words may be written again
    std::byte* const from = words_.at(word * sizeof messages);
    std::memcpy(from, &messages, sizeof messages);
    runtime_.copy_async(place, device_, from, -1, sizeof messages, stream_.handle());
  }

 private:
  static constexpr std::size_t kWords = 512;
  DeviceRuntime& runtime_;
  int device_;
  Buffer words_;
  Stream stream_;
  std::size_t told_ = 0;
};

class FarCounters final : public Counters {
 public:
  FarCounters(const RankContext& context, std::shared_ptr<Buffer> own, PeerBuffer peer,
              std::shared_ptr<Telling> telling, std::size_t own_place, std::size_t peer_place)
      : context_(context),
        own_(std::move(own)),
        peer_(std::move(peer)),
        telling_(std::move(telling)),
        own_place_(own_place),
        peer_place_(peer_place) {}

  void tell(std::uint64_t messages) override {
    telling_->tell(static_cast<std::byte*>(peer_.data) + peer_place_, messages);
  }
  void await(std::uint64_t messages) override {
    const Progress none;
    Waiter waiter(none);
    for (std::uint64_t found = 0; true; waiter.pause()) {
      context_.runtime->copy_now(&found, -1, own_->at(own_place_), context_.device(), sizeof found);
      if (found >= messages) return;
      context_.group->throw_if_aborted();
    }
  }

 private:
  RankContext context_;
  std::shared_ptr<Buffer> own_;  // of all flows
  PeerBuffer peer_;
  std::shared_ptr<Telling> telling_;
  std::size_t own_place_;
  std::size_t peer_place_;
};

}  // namespace

std::vector<std::unique_ptr<Counters>> connect_far_counters(const RankContext& context, const Flows& flows) {
  const int me = context.rank();
  std::shared_ptr<Buffer> words;
  std::shared_ptr<Telling> telling;
  agreeing(*context.group, {}, [&] {
    for (const Flow& flow : flows) {
      if (flow.ordinal < kMostFlows) continue;
      throw Unsupported("more than " + std::to_string(kMostFlows) + " flows from one rank to another");
    }
    telling = std::make_shared<Telling>(context);
    const std::vector<std::byte> zeros(place_of(context.size(), false, 0));
    words = std::make_shared<Buffer>(*context.runtime, context.device(), MemoryKind::kDevice, zeros.size(),
                                     AllocateOptions{.fabric_handle = true});
    context.runtime->copy_now(words->data(), context.device(), zeros.data(), -1, zeros.size());
  });
  Flows between;
  for (const Flow& flow : flows) {
    between.add({flow.source, flow.target, flow.source == me ? words.get() : nullptr,
                 flow.target == me ? words.get() : nullptr});
  }
  const std::vector<PeerBuffer> targets = open_peers(context, between, ExposedEnd::kTarget);
  const std::vector<PeerBuffer> sources = open_peers(context, between, ExposedEnd::kSource);
  std::vector<std::unique_ptr<Counters>> result(flows.size());
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const bool source = flows[i].source == me;
    if (!flows[i].ends_at(me) || on_one_node(context, flows[i].source, flows[i].target)) continue;
    const int peer = flows[i].peer_of(me);
    const int ordinal = flows[i].ordinal;
    result[i] = std::make_unique<FarCounters>(context, words, source ? targets[i] : sources[i], telling,
                                              place_of(peer, source, ordinal), place_of(me, !source, ordinal));
  }
  return result;
}

}  // namespace linkgauge
