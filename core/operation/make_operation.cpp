#include "operation/make_operation.h"

#include <string>

#include "base/errors.h"
#include "base/patterns.h"
#include "traffic/layout.h"
#include "traffic/side_by_side.h"

namespace linkgauge {
namespace {

// A dimension of some patterns, given to another: it must not be measured as if it had none.
std::string why_not_meant(const CaseSpec& spec) {
  const Mechanism& by = spec.mechanism;
  const Pattern pattern = spec.traffic.pattern;
  const std::string not_of = ", not of " + std::string(to_string(pattern));
  const bool copies = pattern == Pattern::kHostToDevice || pattern == Pattern::kDeviceToHost ||
                      pattern == Pattern::kHostDeviceBidirectional || pattern == Pattern::kLocalCopy ||
                      pattern == Pattern::kStreamCopy;
  if (by.managed != ManagedUse::kDefault && !copies) {
    return "managed = " + std::string(to_string(by.managed)) +
           " is of host_to_device, device_to_host, host_device_bidirectional, local_copy and stream_copy" + not_of;
  }
  if ((spec.places.source_device >= 0 || spec.places.target_device >= 0) && pattern != Pattern::kStreamCopy)
    return "source_device and target_device are of stream_copy" + not_of;
  if (!by.cpu_cores.empty() && pattern != Pattern::kHostStream) return "cpu_cores is of host_stream" + not_of;
  if (by.cpu_node >= 0 && pattern != Pattern::kHostStream) return "cpu_node is of host_stream" + not_of;
  return "";
}

// Handles are of what one rank opens of another's.
std::string why_not_by_fabric(const CaseSpec& spec) {
  if (!spec.places.source.options.fabric_handle) return "";
  if (spec.mechanism.transport != "copy_engine" && spec.mechanism.transport != "kernel")
    return "handles = fabric is of copy_engine and kernel, not of " + spec.mechanism.transport;
  if (spec.places.source.kind != MemoryKind::kDevice && spec.places.target.kind != MemoryKind::kDevice)
    return "handles = fabric is of device memory, which this case has none of";
  return "";
}

// What only kernels do, on a runtime that has none.
std::string why_not_without_kernels(const RankContext& context, const CaseSpec& spec) {
  const bool needed = spec.mechanism.transport == "kernel" || spec.timing.cadence == Cadence::kGated ||
                      spec.traffic.pattern == Pattern::kPointerChase || spec.traffic.pattern == Pattern::kGemm ||
                      spec.traffic.pattern == Pattern::kFlagPingpong;
  return needed ? context.runtime->why_no_kernels() : "";
}

}  // namespace

std::string why_not_carried(const Transport& transport, const RankContext& context, const CaseSpec& spec) {
  if (spec.traffic.pattern == Pattern::kApplication) return why_not_application(transport, context, spec);
  return transport.supports(context, spec);
}

std::unique_ptr<Operation> make_operation(Transport& transport, const RankContext& context, const CaseSpec& spec) {
  std::string reason = why_not_by_fabric(spec);
  if (!reason.empty()) throw Unsupported(reason);
  if (spec.traffic.pattern == Pattern::kApplication) return make_application(transport, context, spec);
  reason = why_not_meant(spec);
  if (reason.empty()) reason = why_not_without_kernels(context, spec);
  if (!reason.empty()) throw Unsupported(reason);
  const bool in_device = traits_of(spec.traffic.pattern).kind == PatternKind::kDevice;
  const bool of_device = in_device && !transport.brings_own(spec);
  if (of_device) reason = why_not_device_pattern(context, spec);
  if (!in_device) reason = why_not_laid_out(spec, context.size());
  if (reason.empty()) reason = transport.supports(context, spec);
  if (!reason.empty()) throw Unsupported(reason);
  if (of_device) return make_device_pattern(transport, context, spec);
  if (std::unique_ptr<Operation> own = transport.collective(context, spec)) return own;
  if (traits_of(spec.traffic.pattern).reduces) {
    reason = context.runtime->why_no_kernels();
    if (reason.empty()) reason = why_not_reached(context, spec.places);
    if (!reason.empty()) throw Unsupported(reason);
  }
  if (moves_as(spec.traffic.pattern) == Pattern::kPingpong) return make_pingpong(transport, context, spec);
  if (traits_of(spec.traffic.pattern).reduces || spec.traffic.pattern == Pattern::kBarrier)
    return make_staged(transport, context, spec);
  return make_exchange(transport, context, spec);
}

}  // namespace linkgauge
