#include "pattern/operation.h"

#include <string>

#include "errors.h"
#include "pattern/layout.h"
#include "pattern/operations.h"
#include "pattern/side_by_side.h"
#include "traffic/patterns.h"

namespace linkgauge {
namespace {

// A dimension of some patterns, given to another: it must not be measured as if it had none.
std::string why_not_meant(const CaseSpec& spec) {
  const std::string pattern(to_string(spec.pattern));
  const bool copies = spec.pattern == Pattern::kHostToDevice || spec.pattern == Pattern::kDeviceToHost ||
                      spec.pattern == Pattern::kHostDeviceBoth || spec.pattern == Pattern::kLocalCopy ||
                      spec.pattern == Pattern::kStreamCopy;
  if (spec.managed != ManagedUse::kDefault && !copies) {
    return "managed = " + std::string(to_string(spec.managed)) +
           " is of host_to_device, device_to_host, host_device_both, local_copy and stream_copy, not of " + pattern;
  }
  if ((spec.source_device >= 0 || spec.target_device >= 0) && spec.pattern != Pattern::kStreamCopy) {
    return "source_device and target_device are of stream_copy, not of " + pattern;
  }
  if (!spec.cpu_cores.empty() && spec.pattern != Pattern::kCpuStream) {
    return "cpu_cores is of cpu_stream, not of " + pattern;
  }
  if (spec.cpu_node >= 0 && spec.pattern != Pattern::kCpuStream) return "cpu_node is of cpu_stream, not of " + pattern;
  return "";
}

// Handles are of what one rank opens of another's.
std::string why_not_by_fabric(const CaseSpec& spec) {
  if (!spec.source_options.fabric_handle) return "";
  if (spec.transport != "copy_engine" && spec.transport != "kernel")
    return "handles = fabric is of copy_engine and kernel, not of " + spec.transport;
  if (spec.source_memory != MemoryKind::kDevice && spec.target_memory != MemoryKind::kDevice)
    return "handles = fabric is of device memory, which this case has none of";
  return "";
}

// What only kernels do, on a runtime that has none.
std::string why_not_without_kernels(const RankContext& context, const CaseSpec& spec) {
  const bool needed = spec.transport == "kernel" || spec.cadence == Cadence::kGated ||
                      spec.pattern == Pattern::kChase || spec.pattern == Pattern::kGemm ||
                      spec.pattern == Pattern::kFlagPingpong;
  return needed ? context.runtime->why_no_kernels() : "";
}

}  // namespace

std::unique_ptr<Operation> make_operation(Transport& transport, const RankContext& context, const CaseSpec& spec) {
  std::string reason = why_not_by_fabric(spec);
  if (!reason.empty()) throw Unsupported(reason);
  if (spec.pattern == Pattern::kApplication) return make_application(transport, context, spec);
  reason = why_not_meant(spec);
  if (reason.empty()) reason = why_not_without_kernels(context, spec);
  if (!reason.empty()) throw Unsupported(reason);
  const bool in_device = traits_of(spec.pattern).kind == PatternKind::kDevice;
  const bool of_device = in_device && !transport.brings_own(spec);
  if (of_device) reason = why_not_device_pattern(context, spec);
  if (!in_device) reason = why_not_laid_out(spec, context.size());
  if (reason.empty()) reason = transport.supports(context, spec);
  if (!reason.empty()) throw Unsupported(reason);
  if (of_device) return make_device_pattern(transport, context, spec);
  if (std::unique_ptr<Operation> own = transport.collective(context, spec)) return own;
  if (traits_of(spec.pattern).reduces) {
    reason = context.runtime->why_no_kernels();
    if (reason.empty()) reason = why_not_reached(context, spec);
    if (!reason.empty()) throw Unsupported(reason);
  }
  if (spec.pattern == Pattern::kPingpong || spec.pattern == Pattern::kPairsPingpong)
    return make_pingpong(transport, context, spec);
  if (traits_of(spec.pattern).reduces || spec.pattern == Pattern::kBarrier)
    return make_staged(transport, context, spec);
  return make_exchange(transport, context, spec);
}

End end_of(const CaseSpec& spec, int ranks, int rank, bool sends) {
  const bool source = ranks > 1 && traits_of(spec.pattern).comes_back ? rank % 2 == 0 : sends;
  if (source) return {spec.source_memory, spec.source_options};
  return {spec.target_memory, spec.target_options};
}

std::vector<std::string> lanes_of(const CaseSpec& spec) {
  const std::size_t ranks = spec.rank_list.size();
  const std::string last = std::to_string(ranks == 0 ? 0 : ranks - 1);
  if (spec.groups > 1) {
    const std::size_t size = ranks / static_cast<std::size_t>(spec.groups);
    std::vector<std::string> lanes;
    for (std::size_t first = 0; first < ranks; first += size) {
      lanes.push_back(std::to_string(first) + "-" + std::to_string(first + size - 1));
    }
    return lanes;
  }
  switch (spec.pattern) {
    case Pattern::kPingpong:
    case Pattern::kUnidirectional:
    case Pattern::kFlagPingpong:
      return {"0->" + last};
    case Pattern::kBidirectional:
      if (ranks == 1) return {"0<->0"};  // both ways in one interval
      return {"0->1", "1->0"};
    case Pattern::kPairsPingpong:
    case Pattern::kPairsUnidirectional:
    case Pattern::kPairsBidirectional: {
      std::vector<std::string> lanes;
      for (std::size_t rank = 0; rank + 1 < ranks; rank += 2) {
        lanes.push_back(std::to_string(rank) + "->" + std::to_string(rank + 1));
        if (spec.pattern == Pattern::kPairsBidirectional) {
          lanes.push_back(std::to_string(rank + 1) + "->" + std::to_string(rank));
        }
      }
      return lanes;
    }
    case Pattern::kChase:
      return {ranks == 2 ? "0->1" : "0"};
    case Pattern::kHostToDeviceBeside:
      return {"host->0"};
    case Pattern::kDeviceToHostBeside:
      return {"0->host"};
    case Pattern::kHostToDevice:
    case Pattern::kDeviceToHost:
    case Pattern::kHostDeviceBoth:
    case Pattern::kLocalCopy:
    case Pattern::kStreamCopy:
    case Pattern::kCpuStream:
    case Pattern::kGemm:
    case Pattern::kFloor: {
      std::vector<std::string> lanes;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::string name = std::to_string(rank);
        if (spec.pattern == Pattern::kHostToDevice) {
          lanes.push_back("host->" + name);
        } else if (spec.pattern == Pattern::kDeviceToHost) {
          lanes.push_back(name + "->host");
        } else if (spec.pattern == Pattern::kHostDeviceBoth) {
          lanes.push_back("host<->" + name);
        } else {
          lanes.push_back(name);
        }
      }
      return lanes;
    }
    default:
      return {"all"};
  }
}

}  // namespace linkgauge
