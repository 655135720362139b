// When a case has been measured enough. A rule says how many samples to take before it looks, and then judges the
// series of the timekeepers' times. It gives the same answer on every rank, for it sees the same series.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/case_spec.h"

namespace linkgauge {

struct Verdict {
  bool finished = false;
  bool converged = false;       // the rule's own aim is reached
  std::string_view stopped_by;  // where finished
};

class StopRule {
 public:
  virtual ~StopRule() = default;
  // How many samples there shall be at the next look, when there are `taken`.
  virtual std::int64_t next_look(std::int64_t taken) const = 0;
  // `series`: one time an operation and sample, in order; `tick`: the clock's resolution in it.
  virtual Verdict look(std::span<const double> series, std::int64_t elapsed_ns, double tick) const = 0;
};

std::unique_ptr<StopRule> make_stop_rule(const StopRuleSpec& spec);

}  // namespace linkgauge
