// A flow through host memory: device to a slot, the host leg, slot to device. Chunks move through the three steps as
// slots allow: one slot and whole messages are store and forward, several slots and small chunks are a pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/copy_leg.h"
#include "transport/staging/host_leg.h"
#include "transport/transport.h"

namespace linkgauge {

class StagingChannel;

// All channels of an operation on this rank: whoever waits moves all of them on, so that no two ranks wait for each
// other's slots. Their slots lie in one piece of memory for each end, which peers open as one.
struct StagingEngine {
  std::vector<StagingChannel*> channels;
  Buffer source_slots;
  Buffer target_slots;
  void advance();
};

struct StagingShape {
  std::size_t chunk_bytes = 0;  // of a slot
  std::uint64_t slots = 1;      // at most 16
  std::size_t queue = 1;        // messages that may be queued before earlier ones must be through
};

class StagingChannel final : public Channel {
 public:
  // Where its slots begin, in the engine's.
  struct Slots {
    std::byte* source = nullptr;
    std::byte* target = nullptr;
  };
  StagingChannel(const RankContext& context, const Flow& flow, const StagingShape& shape, const Slots& slots,
                 std::shared_ptr<StagingEngine> engine);
  ~StagingChannel() override;
  void set_leg(std::unique_ptr<HostLeg> leg) { leg_ = std::move(leg); }
  void keep(std::shared_ptr<void> opened) { peer_slots_ = std::move(opened); }  // what the leg reads
  HostLegEnds leg_ends() const;

  void put(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override;
  void get(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override;
  void complete(Completion completion) override;
  // The target's end waits for what is posted, the source's may wait for the target's answer.
  bool completes_first() const override { return !sends_; }

  void advance();

 private:
  struct Message {
    std::size_t offset;
    std::size_t bytes;
  };
  // Messages in the order of their chunks; `next` and `within` say where the next chunk starts.
  struct Queue {
    std::vector<Message> messages;  // a ring
    std::uint64_t queued = 0;
    std::uint64_t next = 0;
    std::size_t within = 0;
    bool empty() const { return next == queued; }
    bool full() const { return queued - next == messages.size(); }
    void push(Message message) { messages[static_cast<std::size_t>(queued++ % messages.size())] = message; }
    Message take(std::size_t chunk_bytes);
  };

  void advance_source();
  void advance_target();
  bool source_drained() const { return outgoing_.empty() && freed_ == copied_; }
  bool target_drained() const { return incoming_.empty() && uploaded_ == posted_; }
  template <typename Condition>
  void wait_until(const Condition& condition);
  std::size_t slot_of(std::uint64_t chunk) const { return static_cast<std::size_t>(chunk % shape_.slots); }

  DeviceRuntime* runtime_;
  Group* group_;
  const Buffer* source_;
  const Buffer* target_;
  bool sends_;
  bool receives_;
  StagingShape shape_;
  Slots slots_;
  std::shared_ptr<StagingEngine> engine_;
  std::shared_ptr<void> peer_slots_;
  std::unique_ptr<HostLeg> leg_;
  std::vector<Event> down_events_;
  std::vector<Event> up_events_;
  CopyStream down_;  // device to slot; after the events: goes first
  CopyStream up_;    // slot to device
  Progress no_progress_;

  Queue outgoing_;
  std::vector<std::size_t> slot_bytes_;
  std::uint64_t copied_ = 0;  // chunks whose copy into a slot is queued
  std::uint64_t sent_ = 0;    // chunks given to the host leg
  std::uint64_t freed_ = 0;   // chunks whose slot may be written again

  Queue incoming_;
  std::vector<Message> arriving_;  // by slot
  std::uint64_t posted_ = 0;       // chunks that the host leg expects
  std::uint64_t uploaded_ = 0;     // chunks whose copy to the device is queued
  std::uint64_t cleared_ = 0;      // chunks whose slot may be written again
};

}  // namespace linkgauge
