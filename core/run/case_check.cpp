#include "run/case_check.h"

#include <string>

#include "base/errors.h"
#include "base/words.h"
#include "group/region_group.h"
#include "traffic/side_by_side.h"

namespace linkgauge {

void check_case(const CaseSpec& spec, int launch_size, int device_count) {
  const auto ranks = static_cast<int>(spec.places.rank_list.size());
  check_subset(spec.places.rank_list, launch_size);
  if (spec.places.devices.size() != spec.places.rank_list.size()) {
    throw CallerError("devices [" + listed(spec.places.devices) + "] must have one entry for each of the " +
                      std::to_string(ranks) + " ranks");
  }
  for (const int device : spec.places.devices) {
    if (device < 0 || device >= device_count) {
      throw CallerError("there is no device " + std::to_string(device) + ", expected 0 to " +
                        std::to_string(device_count - 1));
    }
  }
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least) return;
    throw CallerError(std::string(name) + " " + std::to_string(value) + " must be " + std::to_string(least) +
                      " or more");
  };
  at_least("size_bytes", spec.traffic.size_bytes, 0);
  at_least("window", spec.traffic.window, 1);
  at_least("batch", spec.timing.batch, 1);
  at_least("skew_ns", spec.timing.skew_ns, 0);
  at_least("warmup", spec.timing.warmup, 0);
  at_least("checks", spec.timing.checks, 0);
  for (const int device : {spec.places.source_device, spec.places.target_device}) {
    if (device < device_count) continue;
    throw CallerError("there is no device " + std::to_string(device) + ", expected -1 to " +
                      std::to_string(device_count - 1));
  }
  const std::string ungrouped = why_not_grouped(spec);
  if (!ungrouped.empty()) throw CallerError(ungrouped);
  if (spec.traffic.root < 0 || spec.traffic.root >= ranks / spec.places.groups) {
    throw CallerError("root " + std::to_string(spec.traffic.root) + " must be a rank of the case or group, 0 to " +
                      std::to_string(ranks / spec.places.groups - 1));
  }
}

}  // namespace linkgauge
