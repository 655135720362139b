// A channel whose copies one rank starts alone, reaching into the other's memory. The other learns by a counter, in
// shared memory (Group::flag), between nodes in device memory, unless the mechanism has one of its own; where the
// target starts them, another counter tells it that the source is ready.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace linkgauge {

// One end's counters of a flow: how it tells the other end, and waits for what that tells.
class Counters {
 public:
  virtual ~Counters() = default;
  virtual void tell(std::uint64_t messages) = 0;
  virtual void await(std::uint64_t messages) = 0;
};

// Whether ranks share a node's memory. Not collective.
bool on_one_node(const RankContext& context, int one, int other);

// The two counters of a flow. A pair of ranks has Group::kFlagChannels of them, so at most two flows each way.
struct FlowFlags {
  std::atomic<std::uint64_t>* ready =
      nullptr;  // messages that the source has announced, or, where it starts them, that were read
  std::atomic<std::uint64_t>* done = nullptr;  // messages that are where they belong
  std::uint64_t ready_base = 0;                // their values when the flow was connected
  std::uint64_t done_base = 0;
};

// Collective: the counters of each flow that this rank is an end of. Throws Unsupported on every rank where two ranks
// share no node (unless `far`: these then have none) or a pair has too many flows.
std::vector<FlowFlags> connect_flags(const RankContext& context, const Flows& flows, bool far = false);

class OneSidedChannel : public Channel {
 public:
  struct Ends {
    bool source = false;  // this rank is
    bool target = false;
    bool sender_starts = true;
    bool awaits_consumption = false;  // the source writes only what Channel::consumed has cleared

    Ends() = default;
    Ends(const RankContext& context, const CaseSpec& spec, const Flow& flow, bool by_sender);
    bool starts() const { return sender_starts ? source : target; }
    bool alone() const { return source && target; }
  };
  OneSidedChannel(const RankContext& context, const FlowFlags& flags, Ends ends, Progress progress);
  // For a mechanism with counters of its own: tell and await are its.
  OneSidedChannel(const RankContext& context, Ends ends) : OneSidedChannel(context, {}, ends, {}) {}

  void put(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) final;
  void get(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) final;
  void complete(Completion completion) final;
  void consumed() final;
  bool completes_first() const final { return starts(); }
  // In place of those in shared memory; nullptr: these.
  void set_counters(std::unique_ptr<Counters> counters) { counters_ = std::move(counters); }

 protected:
  virtual void start_copy(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) = 0;
  virtual void finish() = 0;  // returns when all started bytes are at the target
  virtual void arrived() {}   // at the target, once the other side has told of completion
  // The counters between two ranks: the rank that starts the copies tells how many messages are where they belong, the
  // other how many are ready or read. Each awaits the other's.
  virtual void tell(std::uint64_t messages);
  virtual void await(std::uint64_t messages);
  bool starts() const { return ends_.starts(); }
  bool alone() const { return ends_.alone(); }

 private:
  Group* group_;
  FlowFlags flags_;
  std::unique_ptr<Counters> counters_;
  Ends ends_;
  Progress progress_;
  std::uint64_t messages_ = 0;  // queued at this end since the flow was connected
};

}  // namespace linkgauge
