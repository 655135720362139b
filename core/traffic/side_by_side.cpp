#include "traffic/side_by_side.h"

#include "base/patterns.h"
#include "traffic/layout.h"

namespace linkgauge {

int groups_of(const CaseSpec& spec) {
  const auto ranks = static_cast<int>(spec.places.rank_list.size());
  if (spec.mechanism.transport == "ccl" && traits_of(spec.traffic.pattern).side_by_side && ranks % 2 == 0)
    return ranks / 2;
  return spec.places.groups;
}

CaseSpec part_of(const CaseSpec& spec, int number) {
  const int groups = groups_of(spec);
  if (groups <= 1) return spec;
  const auto size = static_cast<std::ptrdiff_t>(spec.places.rank_list.size()) / groups;
  const auto cut = [&](const std::vector<int>& all) {
    return std::vector<int>(all.begin() + number * size, all.begin() + (number + 1) * size);
  };
  CaseSpec part = spec;
  part.places.rank_list = cut(spec.places.rank_list);
  part.places.devices = cut(spec.places.devices);
  part.places.groups = 1;
  if (traits_of(spec.traffic.pattern).side_by_side) part.traffic.pattern = moves_as(spec.traffic.pattern);
  return part;
}

std::string why_not_grouped(const CaseSpec& spec) {
  const auto ranks = static_cast<int>(spec.places.rank_list.size());
  if (spec.places.groups == 1) return "";
  const std::string asked = "groups = " + std::to_string(spec.places.groups);
  if (!traits_of(spec.traffic.pattern).in_groups)
    return asked + " is of collective patterns, not of " + std::string(to_string(spec.traffic.pattern));
  if (spec.places.groups < 1 || ranks % spec.places.groups != 0 || ranks / spec.places.groups < 2) {
    return asked + " does not cut " + std::to_string(ranks) + " ranks into equal groups of 2 or more";
  }
  return "";
}

}  // namespace linkgauge
