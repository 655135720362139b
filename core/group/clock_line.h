// A node's clock against the first node's from comparison to comparison: between two nodes that nothing disciplines it
// moves by microseconds a second.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "group/group.h"

namespace linkgauge {

class ClockLine {
 public:
  // A comparison at `at_ns` of this node's clock. How fast the offset changes is taken from it and the one before,
  // where it changed by more than both are uncertain.
  void found(const ClockOffset& clock, std::int64_t at_ns) {
    const std::int64_t moved_ns = clock.offset_ns - last_.offset_ns;
    known_ns_ = compared_ ? at_ns - at_ns_ : 0;
    const bool moves = known_ns_ > 0 && std::abs(moved_ns) > clock.uncertainty_ns + last_.uncertainty_ns;
    rate_ = moves ? static_cast<double>(moved_ns) / static_cast<double>(known_ns_) : 0;
    last_ = clock;
    at_ns_ = at_ns;
    compared_ = true;
  }
  bool compared() const { return compared_; }

  // The offset at `at_ns` of this node's clock. The rate holds for as long as it was seen, no longer: so it is wrong by
  // no more than twice what the comparisons were.
  std::int64_t offset_ns(std::int64_t at_ns) const {
    const std::int64_t since_ns = std::clamp(at_ns - at_ns_, -known_ns_, known_ns_);
    return last_.offset_ns + std::llround(rate_ * static_cast<double>(since_ns));
  }

  // What this node's clock shows when the first node's shows `first_ns`: the same on all of the node's ranks.
  std::int64_t here_ns(std::int64_t first_ns) const {
    return first_ns + offset_ns(first_ns + offset_ns(first_ns + last_.offset_ns));
  }

 private:
  ClockOffset last_;
  std::int64_t at_ns_ = 0;
  std::int64_t known_ns_ = 0;  // between the last two comparisons
  double rate_ = 0;            // ns of the offset a ns
  bool compared_ = false;
};

}  // namespace linkgauge
