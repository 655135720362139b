#include "base/patterns.h"
#include "operation/channel_set.h"
#include "operation/make_operation.h"
#include "transport/buffered_operation.h"
#include "transport/memory/routed.h"

namespace linkgauge {
namespace {

// One iteration is `window` rounds of one message a flow; the messages of a flow reuse one buffer, as OSU's do. In each
// round a rank posts what leaves before what arrives, so that no rank waits for a message that its peer has yet to
// announce.
class Exchange final : public BufferedOperation {
 public:
  Exchange(Transport& transport, const RankContext& context, const CaseSpec& spec)
      : BufferedOperation(transport, context, spec),
        // A sender or root that keeps the time must know that all has arrived.
        completion_(traits_of(spec.traffic.pattern).timekeeper == Timekeeper::kSlowest ? Completion::kLocal
                                                                                       : Completion::kRemote),
        rounds_((traits_of(spec.traffic.pattern).kind == PatternKind::kMessages) ? spec.traffic.window : 1) {}

  void post() override { channels_.exchange_all(rounds_); }
  void complete() override { channels_.complete_all(completion_); }
  std::vector<DeviceQueue> queues() const override { return channels_.queues(); }
  int commands_per_post() const override {
    return rounds_ * channels_.messages_per_queue() * (is_routed(mechanism()) ? routed_commands(spec()) : 1);
  }

 private:
  void connect() override {
    const Schedule schedule = schedule_of(traffic(), ranks(), rank());
    channels_.connect(transport(), context(), spec(), schedule.steps, {source(), target(), nullptr});
  }
  void disconnect() noexcept override { channels_.disconnect(); }

  ChannelSet channels_;
  Completion completion_;
  int rounds_;
};

}  // namespace

std::unique_ptr<Operation> make_exchange(Transport& transport, const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<Exchange>(transport, context, spec);
}

}  // namespace linkgauge
