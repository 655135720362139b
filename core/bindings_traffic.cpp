#include "bindings_traffic.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/case_spec.h"
#include "base/errors.h"
#include "traffic/distribution.h"
#include "traffic/schedule.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a is nanobind's own way

namespace linkgauge {
namespace {

// Of any pattern between ranks; of one that a distribution spreads, checked.
Traffic traffic_between(const std::string& pattern, int ranks, std::size_t bytes, const std::string& distribution,
                        int root) {
  if (ranks < 1) throw CallerError(std::to_string(ranks) + " ranks, expected 1 or more");
  const Traffic traffic{.pattern = from_word<Pattern>(pattern),
                        .size_bytes = static_cast<std::int64_t>(bytes),
                        .root = root,
                        .distribution = distribution};
  if (root < 0 || root >= ranks) {
    throw CallerError("root " + std::to_string(root) + " of " + std::to_string(ranks) + " ranks, expected one of them");
  }
  if (const std::string reason = why_not_distributed(traffic.pattern, distribution, ranks); !reason.empty()) {
    throw CallerError(reason);
  }
  return traffic;
}

Traffic traffic_from(const std::string& pattern, int ranks, std::size_t bytes, const std::string& distribution) {
  const Traffic traffic = traffic_between(pattern, ranks, bytes, distribution, 0);
  if (traffic.pattern != Pattern::kAlltoallv && traffic.pattern != Pattern::kHalo) {
    throw CallerError(pattern + " has no distribution, expected alltoallv or halo");
  }
  return traffic;
}

std::vector<std::tuple<int, int, std::size_t>> pair_bytes(const std::string& pattern, int ranks, std::size_t bytes,
                                                          const std::string& distribution, int root) {
  const Traffic traffic = traffic_between(pattern, ranks, bytes, distribution, root);
  if (traffic.pattern == Pattern::kBarrier && bytes == 0) return {};  // its tokens are nothing to a link
  std::map<std::pair<int, int>, std::size_t> sums;
  if (traffic.pattern == Pattern::kAlltoallv || traffic.pattern == Pattern::kHalo) {  // a rank's own share takes longer
    each_pair(traffic, ranks, [&](int source, int target, std::size_t moved) { sums[{source, target}] += moved; });
  } else {
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Step& step : schedule_of(traffic, ranks, rank).steps) {
        const bool sends = step.kind == StepKind::kTransfer && step.source == rank && step.target != rank;
        if (sends) sums[{step.source, step.target}] += step.bytes;
      }
    }
  }
  std::vector<std::tuple<int, int, std::size_t>> pairs;
  for (const auto& [pair, moved] : sums) pairs.emplace_back(pair.first, pair.second, moved);
  return pairs;
}

}  // namespace

void bind_traffic(nb::module_& module) {
  module.def("pair_bytes", pair_bytes, "pattern"_a, "ranks"_a, "bytes"_a, "distribution"_a = "", "root"_a = 0);
  module.def(
      "rank_bytes",
      [](const std::string& pattern, int ranks, std::size_t bytes, const std::string& distribution) {
        RankBytes found = rank_bytes(traffic_from(pattern, ranks, bytes, distribution), ranks);
        return std::pair(std::move(found.sent), std::move(found.received));
      },
      "pattern"_a, "ranks"_a, "bytes"_a, "distribution"_a);
  module.def(
      "halo_buffer_bytes",
      [](int ranks, std::size_t bytes, const std::string& distribution, bool field) -> std::size_t {
        const Traffic traffic = traffic_from("halo", ranks, bytes, distribution);
        if (!field) return halo_share(traffic, ranks, 0).buffer_bytes;
        return why_no_halo_field(traffic, ranks).empty() ? halo_field(traffic, ranks, 0).buffer_bytes : 0;
      },
      "ranks"_a, "bytes"_a, "distribution"_a, "field"_a);
  module.def(
      "why_not_distributed",
      [](const std::string& pattern, const std::string& distribution, int ranks) {
        return why_not_distributed(from_word<Pattern>(pattern), distribution, ranks);
      },
      "pattern"_a, "distribution"_a, "ranks"_a);
}

}  // namespace linkgauge
