// Copies by load and store in a kernel that reaches into the peer's memory: pulled by the target's rank (remote reads)
// or pushed by the source's (remote writes).
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/patterns.h"
#include "device/kernel_tuning.h"
#include "transport/memory/direct_copies.h"
#include "transport/memory/kernel_allreduce.h"
#include "transport/memory/kernel_options.h"
#include "transport/peer_memory.h"
#include "transport/registry.h"

namespace linkgauge {
namespace {

class KernelLeg final : public CopyLeg {
 public:
  KernelLeg(const RankContext& context, int device, const PeerBuffer& target, const PeerBuffer& source,
            std::size_t bytes, int blocks)
      : CopyLeg(context, device) {
    DeviceRuntime& leg_runtime = *context.runtime;
    const CopyPath path{device, target.copy_device, source.copy_device};
    const CopyVariant variant = fastest_copy(leg_runtime, path, target.data, source.data, bytes, blocks);
    tell_choice(context, variant);
    kernel_ = leg_runtime.kernel(device, variant.kernel);
    shape_ = variant.shape;
  }

  void copy(void* target, const void* source, std::size_t bytes) override {
    runtime().launch_with(kernel_, shape_, stream(), target, source, std::uint64_t{bytes});
  }

 private:
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
};

constexpr Variants<KernelOptions> kKernelVariants{
    "kernel", kKernelWords,
    "; host_barrier and device_barrier are of --algorithm one_shot and two_shot, as in pull+host_barrier, "
    "resident of one_shot with push, store_and_forward and pipelined of a device that --via names, striped of all "
    "others"};

class KernelTransport final : public Transport {
 public:
  std::string_view name() const override { return "kernel"; }
  bool one_sided() const override { return true; }
  std::vector<std::string_view> variants() const override { return kKernelVariants.names(); }
  bool begins_kernels(const Mechanism& by) const override {
    return !kKernelVariants.read(by.variant).value_or(KernelOptions{}).resident;
  }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    const Mechanism& by = spec.mechanism;
    const std::optional<KernelOptions> read = kKernelVariants.read(by.variant);
    if (!fits(read, spec)) {
      if (is_kernel_algorithm(by.variant))
        return "kernel has no variant '" + by.variant + "': that is an algorithm, --algorithm " + by.variant;
      return kKernelVariants.why_not(by.variant);
    }
    const KernelOptions options = read.value_or(KernelOptions{});  // a pattern's own variant says nothing here
    if (std::string reason = why_not_routed(context, spec); !reason.empty()) return reason;
    if (std::string reason = why_not_across(context, spec); !reason.empty()) return reason;
    if (!by.algorithm.empty()) {
      if (std::string reason = why_not_kernel_allreduce(context, spec, options); !reason.empty()) return reason;
    }
    if (traits_of(spec.traffic.pattern).kind == PatternKind::kDevice)
      return "";  // each rank's own memory, of which the patterns say themselves what is reached and lent
    if (std::string reason = why_not_reached(context, spec.places); !reason.empty()) return reason;
    return why_not_shareable(context, spec, options.pushes(by.initiator));
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const Flows& flows) override {
    const auto make_leg = [&](int device, const PeerBuffer& target, const PeerBuffer& source, std::size_t bytes) {
      return std::make_unique<KernelLeg>(context, device, target, source, bytes, spec.mechanism.blocks);
    };
    return connect_one_sided(context, spec, flows,
                             {kKernelVariants.of(spec.mechanism).pushes(spec.mechanism.initiator), true,
                              kernels_are_tried(*context.runtime), make_leg});
  }

  std::unique_ptr<Operation> collective(const RankContext& context, const CaseSpec& spec) override {
    if (spec.mechanism.algorithm.empty()) return nullptr;
    return make_kernel_allreduce(*this, context, spec, kKernelVariants.of(spec.mechanism));
  }

 private:
  static bool fits(const std::optional<KernelOptions>& options, const CaseSpec& spec) {
    if (!spec.mechanism.algorithm.empty()) return options && options->routing == Routing::kNone;
    if (traits_of(spec.traffic.pattern).own_variants) return true;
    if (!options || options->of_allreduce()) return false;
    return options->routing == Routing::kNone || options->direction == PullOrPush::kEither;
  }
};

}  // namespace

std::unique_ptr<Transport> make_kernel_transport() { return std::make_unique<KernelTransport>(); }

}  // namespace linkgauge
