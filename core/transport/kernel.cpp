// Copies by load and store in a kernel that reaches into the peer's memory: pulled by the target's rank (remote reads)
// or pushed by the source's (remote writes).
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/kernel_tuning.h"
#include "pattern/layout.h"
#include "pattern/operation.h"
#include "transport/agreement.h"
#include "transport/kernel_allreduce.h"
#include "transport/one_sided.h"
#include "transport/peer_memory.h"
#include "transport/transports.h"

namespace linkgauge {
namespace {

// Which side's rank launches the copy: the variant's word where there is one, else the initiator.
bool pushes(const CaseSpec& spec) {
  if (spec.variant == "push") return true;
  if (spec.variant == "pull") return false;
  return spec.initiator == Initiator::kSender;
}

class KernelChannel final : public OneSidedChannel {
 public:
  KernelChannel(const RankContext& context, const CaseSpec& spec, const FlowFlags& flags, Ends ends, PeerBuffer target,
                PeerBuffer source)
      : OneSidedChannel(context, flags, ends, {}),
        runtime_(context.runtime),
        target_(std::move(target)),
        source_(std::move(source)) {
    if (!starts()) return;
    stream_ = Stream(*runtime_, context.device());
    const std::size_t bytes =
        std::min({static_cast<std::size_t>(std::max<std::int64_t>(0, spec.size_bytes)), target_.bytes, source_.bytes});
    const CopyPath path{context.device(), target_.copy_device, source_.copy_device};
    const CopyVariant variant = fastest_copy(*runtime_, path, target_.data, source_.data, bytes, spec.blocks);
    kernel_ = runtime_->kernel(context.device(), variant.kernel);
    shape_ = variant.shape;
  }

  StreamHandle stream() const override { return stream_.handle(); }

 private:
  void start(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    void* target = static_cast<std::byte*>(target_.data) + target_offset;
    const void* source = static_cast<const std::byte*>(source_.data) + source_offset;
    std::uint64_t length = bytes;
    void* arguments[] = {&target, &source, &length};
    runtime_->launch(kernel_, shape_, arguments, stream_.handle());
  }
  void finish() override { runtime_->synchronize(stream_.handle()); }

  DeviceRuntime* runtime_;
  PeerBuffer target_;
  PeerBuffer source_;
  Stream stream_;
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
};

class KernelTransport final : public Transport {
 public:
  std::string_view name() const override { return "kernel"; }
  bool one_sided() const override { return true; }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    if (!spec.variant.empty() && spec.variant != "pull" && spec.variant != "push") {
      return "kernel has no variant '" + spec.variant + "'; its variants are pull and push";
    }
    if (spec.via >= 0) return "kernel does not route through a third device yet; leave --via out";
    if (context.group->node_count() > 1) return "kernel reaches devices of one node only";
    if (!spec.algorithm.empty()) {
      if (std::string reason = why_not_kernel_allreduce(spec); !reason.empty()) return reason;
    }
    if (context.runtime->name() != "host" &&
        (spec.source_memory == MemoryKind::kPageable || spec.target_memory == MemoryKind::kPageable)) {
      return "a GPU's kernel cannot reach pageable memory; use device, pinned or managed memory";
    }
    return why_not_shareable(context, pushes(spec) ? spec.target_memory : spec.source_memory);
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const std::vector<Flow>& flows) override {
    const bool sender_starts = pushes(spec);
    std::string reason;
    for (const Flow& flow : flows) {
      if ((sender_starts ? flow.source : flow.target) != context.rank()) continue;
      const int peer = sender_starts ? flow.target : flow.source;
      const int peer_device = context.device_of_rank[static_cast<std::size_t>(peer)];
      if (peer_device == context.device() || !reason.empty()) continue;
      reason = context.runtime->peer_access(context.device(), peer_device);
    }
    agree_or_throw(*context.group, reason);
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
      if (ends.target)
        target = {flows[i].target_buffer->data(), flows[i].target_buffer->copy_device(), nullptr,
                  flows[i].target_buffer->size()};
      if (ends.source)
        source = {flows[i].source_buffer->data(), flows[i].source_buffer->copy_device(), nullptr,
                  flows[i].source_buffer->size()};
      channels[i] =
          std::make_unique<KernelChannel>(context, spec, flags[i], ends, std::move(target), std::move(source));
    }
    return channels;
  }

  std::unique_ptr<Operation> collective(const RankContext& context, const CaseSpec& spec) override {
    if (spec.algorithm.empty()) return nullptr;
    return make_kernel_allreduce(*this, context, spec, pushes(spec));
  }
  Progress progress(const RankContext&) override { return {}; }
};

}  // namespace

LaunchShape kernel_copy_shape(unsigned multiprocessors, unsigned blocks, std::uint64_t bytes) {
  constexpr unsigned kThreads = 512;
  constexpr unsigned kBlocksPerMultiprocessor = 4;
  if (blocks > 0) return {blocks, kThreads, 0};
  const std::uint64_t useful = bytes / (16ULL * kThreads) + 1;
  return {
      static_cast<unsigned>(std::min<std::uint64_t>(useful, std::uint64_t{multiprocessors} * kBlocksPerMultiprocessor)),
      kThreads, 0};
}

std::unique_ptr<Transport> make_kernel_transport() { return std::make_unique<KernelTransport>(); }

}  // namespace linkgauge
