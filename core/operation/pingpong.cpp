#include "operation/channel_set.h"
#include "operation/make_operation.h"
#include "transport/buffered_operation.h"

namespace linkgauge {
namespace {

// Of two ranks, or of pairs of them side by side. Each rank answers with a buffer of its own once it has the other's
// message, as OSU's latency test does. An iteration is a chain on the host, so post() returns when it is over.
class Pingpong final : public BufferedOperation {
 public:
  Pingpong(Transport& transport, const RankContext& context, const CaseSpec& spec)
      : BufferedOperation(transport, context, spec) {}

  void post() override {
    if (ranks() == 1) {
      for (int way = 0; way < 2; ++way) {
        channels_.exchange_all();
        channels_.complete_all(Completion::kLocal);
      }
    } else if (rank() % 2 == 0) {  // of each pair the first
      channels_.put_one_now();
      channels_.get_one_now();
    } else {
      channels_.get_one_now();
      channels_.put_one_now();
    }
  }
  void complete() override {}

 private:
  void connect() override {
    Schedule schedule = schedule_of(traffic(), ranks(), rank());
    if (ranks() == 1) schedule.steps.pop_back();  // there and back is one flow, used twice
    channels_.connect(transport(), context(), spec(), schedule.steps, {source(), target(), nullptr});
  }
  void disconnect() noexcept override { channels_.disconnect(); }

  ChannelSet channels_;
};

}  // namespace

std::unique_ptr<Operation> make_pingpong(Transport& transport, const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<Pingpong>(transport, context, spec);
}

}  // namespace linkgauge
