#include "transport/kernel_allreduce.h"

#include <algorithm>
#include <set>
#include <string>

#include "kernels/direct_text.h"

namespace linkgauge {
namespace {

constexpr std::string_view kHostBarrier = "host_barrier";
constexpr std::string_view kDeviceBarrier = "device_barrier";

// "" or why kernels of these ranks cannot meet each other while they run.
std::string why_not_on_device(const RankContext& context, const CaseSpec& spec) {
  const std::string what = "device_barrier: ";
  if (context.size() > direct::kMostRanks) {
    return what + "at most " + std::to_string(direct::kMostRanks) + " ranks, the case has " +
           std::to_string(context.size()) + "; use host_barrier";
  }
  const std::set<int> devices(context.device_of_rank.begin(), context.device_of_rank.end());
  if (devices.size() != context.device_of_rank.size()) {
    return what + "kernels of two ranks on one device may not run side by side; use host_barrier or one rank a device";
  }
  const int most = context.runtime->describe(context.device()).multiprocessors;
  if (spec.blocks > most) {
    return what + "all blocks must be on the device at once: at most " + std::to_string(most) + ", not " +
           std::to_string(spec.blocks);
  }
  return "";
}

}  // namespace

KernelVariant kernel_variant(std::string_view variant) {
  KernelVariant result;
  while (!variant.empty()) {
    const std::size_t plus = variant.find('+');
    const std::string_view word = variant.substr(0, plus);
    variant.remove_prefix(plus == std::string_view::npos ? variant.size() : plus + 1);
    const bool is_direction = word == "pull" || word == "push";
    std::string_view& place = is_direction ? result.direction : result.meeting;
    if (!place.empty() || (!is_direction && word != kHostBarrier && word != kDeviceBarrier)) result.known = false;
    place = word;
  }
  return result;
}

bool meets_on_device(const RankContext& context, const CaseSpec& spec) {
  const std::string_view asked = kernel_variant(spec.variant).meeting;
  if (!asked.empty()) return asked == kDeviceBarrier;
  // Not by itself on HIP, whose plain allocations promise other devices nothing while a kernel runs, nor on host
  // devices, whose kernel plays the blocks in turn.
  return context.runtime->name() == "cuda" && why_not_on_device(context, spec).empty();
}

std::string why_not_kernel_allreduce(const RankContext& context, const CaseSpec& spec) {
  if (spec.algorithm != "one_shot" && spec.algorithm != "two_shot") {
    return "kernel has no algorithm '" + spec.algorithm + "'; its algorithms are one_shot and two_shot";
  }
  if (spec.pattern != Pattern::kAllreduce) return spec.algorithm + " is an algorithm of allreduce only";
  const bool on_device = meets_on_device(context, spec);
  if (on_device) {
    if (std::string reason = why_not_on_device(context, spec); !reason.empty()) return reason;
  }
  if (spec.in_place && spec.algorithm == "one_shot") {
    return "one_shot reads the peers' operands while it writes; use out of place";
  }
  if (spec.in_place && !on_device) {
    return "two_shot with host_barrier reads the peers' operands while it writes; use out of place or device_barrier";
  }
  return "";
}

std::unique_ptr<Operation> make_kernel_allreduce(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                                 bool pushes) {
  return meets_on_device(context, spec) ? make_device_met_allreduce(transport, context, spec, pushes)
                                        : make_host_met_allreduce(transport, context, spec, pushes);
}

AllreducePart allreduce_part(std::size_t bytes, int ranks, int rank) {
  const direct::Part part = direct::part_of(bytes, ranks, rank);
  return {static_cast<std::size_t>(part.offset), static_cast<std::size_t>(part.bytes)};
}

}  // namespace linkgauge
