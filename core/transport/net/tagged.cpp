// Tagged messages, as MPI libraries over the same library send them; a receive is posted by its exact tag.
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "transport/agreement.h"
#include "transport/net/channels.h"

namespace linkgauge::nic {
namespace {

class TagChannel final : public Channel {
 public:
  TagChannel(const RankContext& context, const Flow& flow, std::shared_ptr<Connections> connections)
      : connections_(std::move(connections)),
        source_(flow.source_buffer == nullptr ? nullptr : flow.source_buffer->at(0)),
        target_(flow.target_buffer == nullptr ? nullptr : flow.target_buffer->at(0)),
        alone_(flow.source == flow.target),
        sends_(flow.source == context.rank()),
        own_(connections_->link(flow.peer_of(context.rank()), sends_ ? *flow.source_buffer : *flow.target_buffer)),
        arriving_(alone_ ? connections_->link(flow.source, *flow.target_buffer) : nullptr) {
    // A worker gets messages of all ranks: a tag names the operation, who sends, and which of its flows. In 48 bits,
    // which is what Slingshot's cards match by.
    const auto tag = [&](int sender, std::uint64_t kind) {
      return std::uint64_t{connections_->turn() & 0xffffU} << 32 | static_cast<std::uint64_t>(sender) << 12 |
             (2 * static_cast<std::uint64_t>(flow.ordinal) + kind);
    };
    tag_ = tag(flow.source, 0);
    answer_tag_ = tag(flow.target, 1);
  }

  void put(std::size_t, std::size_t source_offset, std::size_t bytes) override {
    own_->send(source_ + source_offset, bytes, tag_, false);
  }
  void get(std::size_t target_offset, std::size_t, std::size_t bytes) override {
    (arriving_ ? arriving_ : own_)->receive(target_ + target_offset, bytes, tag_);
  }
  void complete(Completion completion) override {
    wait();
    if (completion == Completion::kLocal || alone_) return;
    if (sends_) {
      own_->receive(nullptr, 0, answer_tag_);
    } else {
      own_->send(nullptr, 0, answer_tag_, true);
    }
    wait();
  }
  void put_now(std::size_t, std::size_t source_offset, std::size_t bytes) override {
    own_->send(source_ + source_offset, bytes, tag_, true);
    wait();
  }
  // The target's end waits for messages that are posted already, the source's may wait for the target's answer.
  bool completes_first() const override { return !sends_; }

 private:
  void wait() {
    own_->wait("a message");
    if (arriving_) arriving_->wait("a message");
  }

  std::shared_ptr<Connections> connections_;
  const std::byte* source_;
  std::byte* target_;
  bool alone_;
  bool sends_;
  std::unique_ptr<Link> own_;
  std::unique_ptr<Link> arriving_;  // of the target buffer, where one rank is both ends
  std::uint64_t tag_ = 0;
  std::uint64_t answer_tag_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Channel>> tag_channels(const RankContext& context, const Flows& flows,
                                                   const std::shared_ptr<Connections>& connections) {
  std::vector<std::unique_ptr<Channel>> channels(flows.size());
  std::string reason;
  try {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (flows[i].ends_at(context.rank())) channels[i] = std::make_unique<TagChannel>(context, flows[i], connections);
    }
  } catch (const RuntimeCallError& error) {  // memory that the library does not register
    reason = error.what();
  }
  agree_or_throw(*context.group, reason, [worker = &connections->worker()] { (void)worker->progress(); });
  return channels;
}

}  // namespace linkgauge::nic
