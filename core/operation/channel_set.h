// This rank's ends of an operation's transfers, in the orders in which they are used.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "traffic/schedule.h"
#include "transport/operation.h"

namespace linkgauge {

// This rank's; nullptr where no step of its own needs one.
struct StepBuffers {
  const Buffer* source = nullptr;
  const Buffer* target = nullptr;
  const Buffer* scratch = nullptr;
  const Buffer* at(StepMemory memory) const {
    return memory == StepMemory::kSource ? source : memory == StepMemory::kTarget ? target : scratch;
  }
};

class ChannelSet {
 public:
  // Collective. A channel for the transfers of `steps` between two memories that share a queue; `steps` are this
  // rank's, and what is no transfer is passed over.
  void connect(Transport& transport, const RankContext& context, const CaseSpec& spec, std::span<const Step> steps,
               const StepBuffers& buffers);
  void disconnect() noexcept;

  // In each round one message of each transfer that leaves this rank, then of each that arrives.
  void exchange_all(int rounds = 1);
  void complete_all(Completion completion);
  void consumed_all();  // what has arrived may be overwritten
  // The one that leaves, and the one that arrives.
  void put_one_now();
  void get_one_now();
  std::vector<DeviceQueue> queues() const;              // each once
  int messages_per_queue() const { return messages_; }  // of one operation, at most

 private:
  struct End {
    Channel* channel;
    Step step;
  };
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<End> leaving_;
  std::vector<End> arriving_;
  std::vector<Channel*> completing_;
  int messages_ = 1;
};

}  // namespace linkgauge
