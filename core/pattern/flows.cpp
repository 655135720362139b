#include "pattern/flows.h"

#include <string>

#include "errors.h"
#include "pattern/layout.h"

namespace linkgauge {

std::vector<PlannedFlow> flows_of(const CaseSpec& spec, int ranks) {
  const auto size = static_cast<std::size_t>(spec.size_bytes);
  const std::size_t block = block_bytes(spec, ranks);
  const int root = spec.root;
  std::vector<PlannedFlow> flows;
  const auto place = [&](int rank) { return static_cast<std::size_t>(rank) * block; };
  const auto add_to_all = [&](bool with_own, auto&& make) {
    for (int shift = with_own ? 0 : 1; shift < ranks; ++shift) {
      for (int source = 0; source < ranks; ++source) make(source, (source + shift) % ranks);
    }
  };
  const auto add_from_root = [&](bool with_own, auto&& make) {
    for (int shift = with_own ? 0 : 1; shift < ranks; ++shift) make((root + shift) % ranks);
  };

  switch (spec.pattern) {
    case Pattern::kPingpong:
      flows.push_back({0, ranks - 1, 0, 0, size});
      flows.push_back({ranks - 1, 0, 0, 0, size});
      break;
    case Pattern::kBidirectional: {
      const std::size_t second = ranks == 1 ? size : 0;
      flows.push_back({0, ranks - 1, 0, 0, size});
      flows.push_back({ranks - 1, 0, second, second, size});
      break;
    }
    case Pattern::kUnidirectional:
      flows.push_back({0, ranks - 1, 0, 0, size});
      break;
    case Pattern::kPairsPingpong:
    case Pattern::kPairsUnidirectional:
    case Pattern::kPairsBidirectional:
      for (int source = 0; source + 1 < ranks; source += 2) {
        flows.push_back({source, source + 1, 0, 0, size});
        if (spec.pattern != Pattern::kPairsUnidirectional) flows.push_back({source + 1, source, 0, 0, size});
      }
      break;
    case Pattern::kRingShift:
      for (int source = 0; source < ranks; ++source) flows.push_back({source, (source + 1) % ranks, 0, 0, size});
      break;
    case Pattern::kOneToAll:
      add_from_root(false, [&](int peer) { flows.push_back({root, peer, place(peer), 0, size}); });
      break;
    case Pattern::kAllToOne:
      add_from_root(false, [&](int peer) { flows.push_back({peer, root, 0, place(peer), size}); });
      break;
    case Pattern::kAlltoall:
      add_to_all(false, [&](int from, int to) { flows.push_back({from, to, place(to), place(from), block}); });
      break;
    case Pattern::kBroadcast:
      add_from_root(false, [&](int peer) { flows.push_back({root, peer, 0, 0, size}); });
      break;
    case Pattern::kAllgather:
      add_to_all(!spec.in_place, [&](int from, int to) {
        flows.push_back({from, to, spec.in_place ? place(from) : 0, place(from), block});
      });
      break;
    case Pattern::kGather:
      add_from_root(!spec.in_place, [&](int peer) { flows.push_back({peer, root, 0, place(peer), block}); });
      break;
    case Pattern::kScatter:
      add_from_root(!spec.in_place, [&](int peer) { flows.push_back({root, peer, place(peer), 0, block}); });
      break;
    default:
      throw CallerError(std::string(to_string(spec.pattern)) + " is not made of flows alone");
  }
  return flows;
}

}  // namespace linkgauge
