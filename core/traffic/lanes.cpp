#include "traffic/lanes.h"

namespace linkgauge {

std::vector<std::string> lanes_of(const CaseSpec& spec) {
  const std::size_t ranks = spec.places.rank_list.size();
  if (spec.places.groups > 1) {
    const std::size_t size = ranks / static_cast<std::size_t>(spec.places.groups);
    std::vector<std::string> lanes;
    for (std::size_t first = 0; first < ranks; first += size) {
      lanes.push_back(std::to_string(first) + "-" + std::to_string(first + size - 1));
    }
    return lanes;
  }
  const Pattern pattern = moves_as(spec.traffic.pattern);
  switch (pattern) {
    case Pattern::kPingpong:
    case Pattern::kUnidirectional:
    case Pattern::kFlagPingpong:
    case Pattern::kBidirectional: {
      const bool both = pattern == Pattern::kBidirectional;
      if (ranks <= 1) return {both ? "0<->0" : "0->0"};  // both ways in one interval
      std::vector<std::string> lanes;
      for (std::size_t rank = 0; rank + 1 < ranks; rank += 2) {
        lanes.push_back(std::to_string(rank) + "->" + std::to_string(rank + 1));
        if (both) lanes.push_back(std::to_string(rank + 1) + "->" + std::to_string(rank));
      }
      return lanes;
    }
    case Pattern::kPointerChase:
      return {ranks == 2 ? "0->1" : "0"};
    case Pattern::kHostToDeviceContended:
      return {"host->0"};
    case Pattern::kDeviceToHostContended:
      return {"0->host"};
    case Pattern::kHostToDevice:
    case Pattern::kDeviceToHost:
    case Pattern::kHostDeviceBidirectional:
    case Pattern::kLocalCopy:
    case Pattern::kStreamCopy:
    case Pattern::kHostStream:
    case Pattern::kGemm:
    case Pattern::kEmptyOp: {
      const bool both = pattern == Pattern::kHostDeviceBidirectional;
      const char* const before = pattern == Pattern::kHostToDevice ? "host->" : both ? "host<->" : "";
      const char* const behind = pattern == Pattern::kDeviceToHost ? "->host" : "";
      std::vector<std::string> lanes;
      for (std::size_t rank = 0; rank < ranks; ++rank) lanes.push_back(before + std::to_string(rank) + behind);
      return lanes;
    }
    default:
      return {"all"};
  }
}

std::string why_not_told_apart(const CaseSpec& spec) {
  constexpr std::size_t kMostLanes = 1 << 15;
  const std::size_t lanes = lanes_of(spec).size();
  if (lanes <= kMostLanes) return "";
  return std::to_string(lanes) + " lanes: a case has at most " + std::to_string(kMostLanes) +
         "; measure fewer ranks at once (--ranks)";
}

}  // namespace linkgauge
