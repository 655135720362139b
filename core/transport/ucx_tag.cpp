// Tagged messages, as MPI libraries over UCX send them. A message queued with others says so (multi send), one that is
// waited for at once does not; a receive is posted by its exact tag.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transport/ucx_channels.h"

namespace linkgauge::ucx {
namespace {

constexpr std::uint64_t kWholeTag = ~std::uint64_t{0};

class TagChannel final : public Channel {
 public:
  // `number`: of the flow among those from its source to its target.
  TagChannel(const RankContext& context, const Flow& flow, std::uint64_t number,
             std::shared_ptr<Connections> connections)
      : connections_(std::move(connections)),
        worker_(&connections_->worker()),
        calls_(&worker_->calls()),
        source_(flow.source_buffer == nullptr ? nullptr : flow.source_buffer->at(0)),
        target_(flow.target_buffer == nullptr ? nullptr : flow.target_buffer->at(0)),
        alone_(flow.source == flow.target),
        sends_(flow.source == context.rank()),
        endpoint_(connections_->endpoint(sends_ ? flow.target : flow.source)),
        tally_(worker_->tally()) {
    // A worker gets messages of all ranks: a tag names the operation, who sends, and which of its flows.
    const auto tag = [&](int sender, std::uint64_t kind) {
      return std::uint64_t{connections_->turn()} << 32 | static_cast<std::uint64_t>(sender) << 12 | (2 * number + kind);
    };
    tag_ = tag(flow.source, 0);
    answer_tag_ = tag(flow.target, 1);
    one_ = RankWorker::request_for(tally_);
    arriving_ = RankWorker::receive_for(tally_);
    // Where the library looks for the kind of memory by itself it costs a look-up a message; of host memory it is told.
    const Buffer* const own = sends_ ? flow.source_buffer : flow.target_buffer;
    if (memory_type_of(*context.runtime, own->kind()) == kHostMemory) {
      for (RequestParameters* const parameters : {&one_, &arriving_}) {
        parameters->op_attr_mask |= RequestParameters::kMemoryType;
        parameters->memory_type = kHostMemory;
      }
    }
    several_ = one_;
    if (worker_->library().at_least(kFirstMinorWithMemory)) several_.op_attr_mask |= RequestParameters::kMultiSend;
  }
  TagChannel(const TagChannel&) = delete;
  TagChannel& operator=(const TagChannel&) = delete;
  ~TagChannel() override {
    if (tally_->under_way != 0) worker_->mark_broken();
    worker_->give_back(tally_);
  }

  void put(std::size_t, std::size_t source_offset, std::size_t bytes) override {
    send(source_ + source_offset, bytes, tag_, several_);
  }
  void get(std::size_t target_offset, std::size_t, std::size_t bytes) override {
    receive(target_ + target_offset, bytes, tag_);
  }
  void complete(Completion completion) override {
    wait();
    if (completion == Completion::kLocal || alone_) return;
    if (sends_) {
      receive(&answered_, 0, answer_tag_);
    } else {
      send(&answered_, 0, answer_tag_, one_);
    }
    wait();
  }
  void put_now(std::size_t, std::size_t source_offset, std::size_t bytes) override {
    send(source_ + source_offset, bytes, tag_, one_);
    wait();
  }
  // The target's end waits for messages that are posted already, the source's may wait for the target's answer.
  bool completes_first() const override { return !sends_; }

 private:
  void send(const void* data, std::size_t bytes, std::uint64_t tag, const RequestParameters& parameters) {
    worker_->count(calls_->ucp_tag_send_nbx(endpoint_, data, bytes, tag, &parameters), tally_, "ucp_tag_send_nbx");
  }
  void receive(void* data, std::size_t bytes, std::uint64_t tag) {
    worker_->count(calls_->ucp_tag_recv_nbx(worker_->get(), data, bytes, tag, kWholeTag, &arriving_), tally_,
                   "ucp_tag_recv_nbx");
  }
  void wait() { worker_->wait(connections_->group(), *tally_, "a message of UCX"); }

  std::shared_ptr<Connections> connections_;
  RankWorker* worker_;
  const Table* calls_;
  const std::byte* source_;
  std::byte* target_;
  bool alone_;
  bool sends_;
  Endpoint endpoint_;
  Tally* tally_;
  std::uint64_t tag_ = 0;
  std::uint64_t answer_tag_ = 0;
  RequestParameters one_;
  RequestParameters several_;
  RequestParameters arriving_;
  char answered_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Channel>> tag_channels(const RankContext& context, const std::vector<Flow>& flows,
                                                   const std::shared_ptr<Connections>& connections) {
  std::vector<std::unique_ptr<Channel>> channels(flows.size());
  std::map<std::pair<int, int>, std::uint64_t> numbers;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const std::uint64_t number = numbers[{flows[i].source, flows[i].target}]++;
    if (flows[i].source != context.rank() && flows[i].target != context.rank()) continue;
    channels[i] = std::make_unique<TagChannel>(context, flows[i], number, connections);
  }
  return channels;
}

}  // namespace linkgauge::ucx
