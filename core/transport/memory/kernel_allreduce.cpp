#include "transport/memory/kernel_allreduce.h"

#include <algorithm>
#include <set>
#include <string>

#include "kernels/direct_text.h"

namespace linkgauge {
namespace {

// Beyond, one_shot moves more than it saves, and its scratch of four bytes a byte and rank becomes large.
constexpr std::int64_t kMostPushedBytes = std::int64_t{1} << 20;
// Beyond, H200 were quicker pulling: 12.4 us against 13.1 on four at 64 KiB, 15.6 against 15.0 at 256 KiB.
constexpr std::int64_t kQuickestPushedBytes = std::int64_t{64} << 10;

// "" or why kernels of these ranks cannot wait for each other while they run.
std::string why_not_side_by_side(const RankContext& context, const Mechanism& by, const std::string& what,
                                 const std::string& instead) {
  if (context.size() > direct::kMostRanks) {
    return what + ": at most " + std::to_string(direct::kMostRanks) + " ranks, the case has " +
           std::to_string(context.size()) + "; use " + instead;
  }
  const std::set<int> devices(context.device_of_rank.begin(), context.device_of_rank.end());
  if (devices.size() != context.device_of_rank.size()) {
    return what + ": kernels of two ranks on one device may not run side by side; use " + instead +
           " or one rank a device";
  }
  const int most = context.runtime->describe(context.device()).multiprocessors;
  if (by.blocks > most) {
    return what + ": all blocks must be on the device at once: at most " + std::to_string(most) + ", not " +
           std::to_string(by.blocks);
  }
  return "";
}

std::string why_not_on_device(const RankContext& context, const CaseSpec& spec) {
  return why_not_side_by_side(context, spec.mechanism, std::string(kDeviceBarrier), std::string(kHostBarrier));
}

std::string why_not_pushed(const RankContext& context, const CaseSpec& spec) {
  if (spec.traffic.size_bytes > kMostPushedBytes) {
    return "one_shot pushes at most " + std::to_string(kMostPushedBytes) + " bytes, the case has " +
           std::to_string(spec.traffic.size_bytes) + "; use --variant pull or --algorithm two_shot";
  }
  return why_not_side_by_side(context, spec.mechanism, "push", "pull");
}

constexpr std::string_view kOneShot = "one_shot";

}  // namespace

bool is_kernel_algorithm(std::string_view word) { return word == kOneShot || word == "two_shot"; }
bool is_one_shot(const Mechanism& by) { return by.algorithm == kOneShot; }

// Nothing waits on the device by itself on HIP, whose plain allocations promise other devices nothing while a kernel
// runs, nor on host devices, whose kernel plays the blocks in turn.
AllreduceWay allreduce_way(const RankContext& context, const CaseSpec& spec, const KernelOptions& options) {
  const bool cuda = context.runtime->name() == "cuda";
  if (is_one_shot(spec.mechanism) && options.direction == PullOrPush::kPush) return AllreduceWay::kPushed;
  if (options.meeting != Meeting::kAnywhere)
    return options.meets_on_device() ? AllreduceWay::kDeviceMet : AllreduceWay::kHostMet;
  if (is_one_shot(spec.mechanism)) {
    if (options.direction == PullOrPush::kPull)
      return AllreduceWay::kHostMet;  // quicker than on the device, as measured
    if (options.resident) return AllreduceWay::kPushed;
    const bool quickest =
        spec.traffic.size_bytes <= kQuickestPushedBytes || spec.traffic.in_place;  // only what is pushed is in place
    return cuda && quickest && why_not_pushed(context, spec).empty() ? AllreduceWay::kPushed : AllreduceWay::kHostMet;
  }
  return cuda && why_not_on_device(context, spec).empty() ? AllreduceWay::kDeviceMet : AllreduceWay::kHostMet;
}

std::string why_not_kernel_allreduce(const RankContext& context, const CaseSpec& spec, const KernelOptions& options) {
  const Mechanism& by = spec.mechanism;
  if (!is_kernel_algorithm(by.algorithm)) {
    return "kernel has no algorithm '" + by.algorithm + "'; its algorithms are one_shot and two_shot";
  }
  if (spec.traffic.pattern != Pattern::kAllreduce) return by.algorithm + " is an algorithm of allreduce only";
  const AllreduceWay way = allreduce_way(context, spec, options);
  if (way != AllreduceWay::kPushed && options.resident)
    return std::string(kResident) + " is of --algorithm one_shot with push only; leave it out";
  if (way == AllreduceWay::kPushed) {
    if (options.meeting != Meeting::kAnywhere) {
      const std::string_view meeting = options.meets_on_device() ? kDeviceBarrier : kHostBarrier;
      return "one_shot with push has no meetings; leave out " + std::string(meeting) + ", or use pull";
    }
    return why_not_pushed(context, spec);
  }
  if (way == AllreduceWay::kDeviceMet) {
    if (std::string reason = why_not_on_device(context, spec); !reason.empty()) return reason;
  }
  if (spec.traffic.in_place && is_one_shot(by)) {
    return "one_shot reads the peers' operands while it writes, unless it pushes; use push or out of place";
  }
  if (spec.traffic.in_place && way == AllreduceWay::kHostMet) {
    return "two_shot with host_barrier reads the peers' operands while it writes; use out of place or device_barrier";
  }
  return "";
}

std::unique_ptr<Operation> make_kernel_allreduce(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                                 const KernelOptions& options) {
  const AllreduceWay way = allreduce_way(context, spec, options);
  const bool pushes = options.pushes(spec.mechanism.initiator);
  if (options.meeting == Meeting::kAnywhere && options.direction == PullOrPush::kEither) {  // else it was asked for
    const bool on_device = way == AllreduceWay::kDeviceMet;
    context.choose("way",
                   way == AllreduceWay::kPushed ? "push" : std::string(on_device ? kDeviceBarrier : kHostBarrier));
  }
  switch (way) {
    case AllreduceWay::kPushed:
      return make_pushed_allreduce(transport, context, spec, options);
    case AllreduceWay::kDeviceMet:
      return make_device_met_allreduce(transport, context, spec, pushes);
    case AllreduceWay::kHostMet:
      break;
  }
  return make_host_met_allreduce(transport, context, spec, pushes);
}

}  // namespace linkgauge
