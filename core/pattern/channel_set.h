// This rank's ends of an operation's flows, in the orders in which they are used.
#pragma once

#include <memory>
#include <vector>

#include "pattern/flows.h"
#include "pattern/operation.h"

namespace linkgauge {

class ChannelSet {
 public:
  // Collective. Buffers are this rank's; nullptr where it is no end of a flow that needs one.
  void connect(Transport& transport, const RankContext& context, const CaseSpec& spec,
               const std::vector<PlannedFlow>& flows, const Buffer* source, const Buffer* target);
  void disconnect() noexcept;

  void put_all();  // one message of each flow that leaves this rank
  void get_all();  // and of each that arrives
  void complete_all(Completion completion);
  void consumed_all();  // what has arrived may be overwritten
  // The one flow that leaves, and the one that arrives.
  void put_one_now();
  void get_one_now();
  std::vector<DeviceQueue> queues() const;

 private:
  struct End {
    Channel* channel;
    PlannedFlow flow;
  };
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<End> leaving_;
  std::vector<End> arriving_;
  std::vector<Channel*> completing_;
};

}  // namespace linkgauge
