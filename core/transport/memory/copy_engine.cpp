// The runtime's copy engine: copy_async through pointers of this process or opened handles of another.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/patterns.h"
#include "transport/memory/direct_copies.h"
#include "transport/memory/routed.h"
#include "transport/options.h"
#include "transport/peer_memory.h"
#include "transport/registry.h"

namespace linkgauge {
namespace {

class CopyEngineLeg final : public CopyLeg {
 public:
  CopyEngineLeg(const RankContext& context, int device, int target_device, int source_device)
      : CopyLeg(context, device), target_device_(target_device), source_device_(source_device) {}

  void copy(void* target, const void* source, std::size_t bytes) override {
    runtime().copy_async(target, target_device_, source, source_device_, bytes, stream());
  }

 private:
  int target_device_;
  int source_device_;
};

// Who starts the copies is the case's initiator.
constexpr Variants<Routing> kCopyEngineVariants{"copy_engine", kRoutingWords,
                                                ", through a device that --via names (striped: through all others). "
                                                "Who starts the copies is --initiator sender|receiver"};

class CopyEngineTransport final : public Transport {
 public:
  std::string_view name() const override { return "copy_engine"; }
  bool one_sided() const override { return true; }
  std::vector<std::string_view> variants() const override { return kCopyEngineVariants.names(); }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    const Mechanism& by = spec.mechanism;
    if (!traits_of(spec.traffic.pattern).own_variants && !kCopyEngineVariants.read(by.variant))
      return kCopyEngineVariants.why_not(by.variant);
    if (std::string reason = why_not_routed(context, spec); !reason.empty()) return reason;
    if (std::string reason = why_no_algorithm(name(), by); !reason.empty()) return reason;
    if (std::string reason = why_not_across(context, spec); !reason.empty()) return reason;
    if (traits_of(spec.traffic.pattern).kind == PatternKind::kDevice) return "";  // each rank's own memory
    return why_not_shareable(context, spec, by.initiator == Initiator::kSender);
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const Flows& flows) override {
    // Direct copies where the devices allow them; where they do not, the runtime stages by itself, which is this
    // transport's answer there too (the launch's peer access says which was asked for).
    const auto make_leg = [&](int device, const PeerBuffer& target, const PeerBuffer& source, std::size_t) {
      return std::make_unique<CopyEngineLeg>(context, device, target.named_device(), source.named_device());
    };
    return connect_one_sided(context, spec, flows,
                             {spec.mechanism.initiator == Initiator::kSender, false, false, make_leg});
  }
};

}  // namespace

std::unique_ptr<Transport> make_copy_engine_transport() { return std::make_unique<CopyEngineTransport>(); }

}  // namespace linkgauge
