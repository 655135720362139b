#include "transport/nccl/messages.h"

#include <utility>

#include "base/errors.h"
#include "transport/nccl/communicator.h"

namespace linkgauge {
namespace {

// Of one rank, for all its channels.
class Messages : NotCopied {
 public:
  Messages(const RankContext& context, const ccl::Library& library)
      : runtime_(context.runtime),
        group_(context.group),
        communicator_(library, context, nullptr),
        stream_(*context.runtime, context.device()) {}
  ~Messages() { communicator_.abort_if_broken(*group_); }

  StreamHandle stream() const { return stream_.handle(); }

  void add(bool sends, void* at, std::size_t bytes, int peer) { noted_.push_back({sends, at, bytes, peer}); }

  void start() {
    if (noted_.empty()) return;
    communicator_.grouped([&] {
      for (const Message& one : noted_) {
        if (one.sends) {
          communicator_.send(one.at, one.bytes, one.peer, stream_.handle());
        } else {
          communicator_.receive(one.at, one.bytes, one.peer, stream_.handle());
        }
      }
      noted_.clear();
      under_way_ = true;
    });
  }

  void complete() {
    start();
    if (!under_way_) return;
    communicator_.wait_for(*runtime_, stream_.handle(), *group_);
    under_way_ = false;
  }

 private:
  struct Message {
    bool sends;
    void* at;
    std::size_t bytes;
    int peer;
  };

  DeviceRuntime* runtime_;
  Group* group_;
  CclCommunicator communicator_;
  Stream stream_;
  std::vector<Message> noted_;
  bool under_way_ = false;
};

class CclChannel final : public Channel {
 public:
  CclChannel(std::shared_ptr<Messages> messages, const Flow& flow, int device)
      : messages_(std::move(messages)), flow_(flow), device_(device) {}

  void put(std::size_t /*target_offset*/, std::size_t source_offset, std::size_t bytes) override {
    messages_->add(true, flow_.source_buffer->at(source_offset), bytes, flow_.target);
  }
  void get(std::size_t target_offset, std::size_t /*source_offset*/, std::size_t bytes) override {
    messages_->add(false, flow_.target_buffer->at(target_offset), bytes, flow_.source);
  }
  void start() override { messages_->start(); }
  // NCCL does not say at the source that the target has all bytes: an application's steps do not need it.
  void complete(Completion completion) override {
    if (completion == Completion::kRemote) throw CallerError("ccl's messages are complete at their own end alone");
    messages_->complete();
  }
  bool completes_first() const override { return false; }
  std::vector<DeviceQueue> queues() const override { return {{messages_->stream(), device_}}; }

 private:
  std::shared_ptr<Messages> messages_;
  Flow flow_;
  int device_;
};

}  // namespace

std::vector<std::unique_ptr<Channel>> connect_ccl(const RankContext& context, const ccl::Library& library,
                                                  const Flows& flows) {
  context.runtime->bind_thread(context.device());
  const auto messages = std::make_shared<Messages>(context, library);
  std::vector<std::unique_ptr<Channel>> channels;
  for (const Flow& flow : flows) {
    channels.push_back(std::make_unique<CclChannel>(messages, flow, context.device()));
    const bool sends = flow.source == context.rank();
    messages->add(sends, (sends ? flow.source_buffer : flow.target_buffer)->at(0), 1, flow.peer_of(context.rank()));
  }
  // NCCL connects two ranks when they first need it, and each waits there for the other. A group of a send and a
  // receive would wait for a rank that itself waits for what is sent.
  messages->complete();
  return channels;
}

}  // namespace linkgauge
