// The runtime's copy engine: copy_async through pointers of this process or opened handles of another.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "pattern/layout.h"
#include "pattern/operation.h"
#include "transport/one_sided.h"
#include "transport/peer_memory.h"
#include "transport/transports.h"

namespace linkgauge {
namespace {

class CopyEngineChannel final : public OneSidedChannel {
 public:
  CopyEngineChannel(const RankContext& context, const FlowFlags& flags, Ends ends, PeerBuffer target, PeerBuffer source)
      : OneSidedChannel(context, flags, ends, {}),
        runtime_(context.runtime),
        target_(std::move(target)),
        source_(std::move(source)) {
    if (starts()) stream_ = Stream(*runtime_, context.device());
  }

  StreamHandle stream() const override { return stream_.handle(); }

 private:
  void start(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    runtime_->copy_async(static_cast<std::byte*>(target_.data) + target_offset, target_.copy_device,
                         static_cast<const std::byte*>(source_.data) + source_offset, source_.copy_device, bytes,
                         stream_.handle());
  }
  void finish() override { runtime_->synchronize(stream_.handle()); }

  DeviceRuntime* runtime_;
  PeerBuffer target_;
  PeerBuffer source_;
  Stream stream_;
};

class CopyEngineTransport final : public Transport {
 public:
  std::string_view name() const override { return "copy_engine"; }
  bool one_sided() const override { return true; }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    if (!spec.variant.empty()) {
      return "copy_engine has no variant '" + spec.variant + "'; who starts the copies is --initiator sender|receiver";
    }
    if (spec.via >= 0) return "copy_engine does not route through a third device yet; leave --via out";
    if (!spec.algorithm.empty()) {
      return "copy_engine has no algorithm '" + spec.algorithm + "'; leave --algorithm out";
    }
    if (context.group->node_count() > 1) return "copy_engine reaches devices of one node only";
    return why_not_shareable(context, spec.initiator == Initiator::kSender ? spec.target_memory : spec.source_memory);
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const std::vector<Flow>& flows) override {
    const bool sender_starts = spec.initiator == Initiator::kSender;
    enable_peer_access(context, flows, sender_starts);
    const std::vector<PeerBuffer> peers =
        open_peers(context, flows, sender_starts ? ExposedEnd::kTarget : ExposedEnd::kSource);
    const std::vector<FlowFlags> flags = connect_flags(context, flows);
    std::vector<std::unique_ptr<Channel>> channels(flows.size());
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const OneSidedChannel::Ends ends{flows[i].source == context.rank(), flows[i].target == context.rank(),
                                       sender_starts, reads_what_arrives(spec.pattern)};
      if (!ends.source && !ends.target) continue;
      PeerBuffer target = peers[i];
      PeerBuffer source = peers[i];
      if (ends.target) target = {flows[i].target_buffer->data(), flows[i].target_buffer->copy_device(), nullptr};
      if (ends.source) source = {flows[i].source_buffer->data(), flows[i].source_buffer->copy_device(), nullptr};
      channels[i] = std::make_unique<CopyEngineChannel>(context, flags[i], ends, std::move(target), std::move(source));
    }
    return channels;
  }

  std::unique_ptr<Operation> collective(const RankContext&, const CaseSpec&) override { return nullptr; }
  Progress progress(const RankContext&) override { return {}; }

 private:
  // Direct copies where the devices allow them; where they do not, the runtime stages by itself, which is this
  // transport's answer there too (the launch's peer access says which was asked for).
  static void enable_peer_access(const RankContext& context, const std::vector<Flow>& flows, bool sender_starts) {
    for (const Flow& flow : flows) {
      if ((sender_starts ? flow.source : flow.target) != context.rank()) continue;
      const int peer = sender_starts ? flow.target : flow.source;
      const int peer_device = context.device_of_rank[static_cast<std::size_t>(peer)];
      if (peer_device != context.device()) context.runtime->peer_access(context.device(), peer_device);
    }
  }
};

}  // namespace

std::unique_ptr<Transport> make_copy_engine_transport() { return std::make_unique<CopyEngineTransport>(); }

}  // namespace linkgauge
