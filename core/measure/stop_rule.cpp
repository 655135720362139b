#include "measure/stop_rule.h"

#include <algorithm>

#include "base/errors.h"
#include "measure/statistics.h"

namespace linkgauge {
namespace {

constexpr std::int64_t kFirstLook = 30;

class CountRule final : public StopRule {
 public:
  explicit CountRule(std::int64_t samples) : samples_(samples) {}
  std::int64_t next_look(std::int64_t /*taken*/) const override { return samples_; }
  Verdict look(std::span<const double> series, std::int64_t /*elapsed_ns*/, double /*tick*/) const override {
    const bool reached = static_cast<std::int64_t>(series.size()) >= samples_;
    return {reached, reached, "count"};
  }

 private:
  std::int64_t samples_;
};

// Looks at 30, 60, 120, ... samples and at the most that it may take. Looking more often would stop at a lucky moment
// and make the intervals too narrow.
class IntervalRule final : public StopRule {
 public:
  IntervalRule(double relative_half_width, std::int64_t most)
      : relative_half_width_(relative_half_width), most_(most) {}

  std::int64_t next_look(std::int64_t taken) const override {
    std::int64_t look = kFirstLook;
    while (look <= taken) look *= 2;
    return std::min(look, std::max(most_, taken + 1));
  }

  Verdict look(std::span<const double> series, std::int64_t /*elapsed_ns*/, double tick) const override {
    const std::span<const double> rest = series.subspan(warmup_cut(series));
    const Interval interval = median_interval(rest, tick);
    const double half_width = (interval.high - interval.low) / 2;
    if (half_width <= relative_half_width_ * median(rest)) return {true, true, "interval"};
    return {static_cast<std::int64_t>(series.size()) >= most_, false, "count"};
  }

 private:
  double relative_half_width_;
  std::int64_t most_;
};

class DurationRule final : public StopRule {
 public:
  explicit DurationRule(std::int64_t time_ns) : time_ns_(time_ns) {}
  std::int64_t next_look(std::int64_t /*taken*/) const override { return INT64_MAX; }
  Verdict look(std::span<const double> /*series*/, std::int64_t elapsed_ns, double /*tick*/) const override {
    const bool reached = elapsed_ns >= time_ns_;
    return {reached, reached, "duration"};
  }

 private:
  std::int64_t time_ns_;
};

}  // namespace

std::unique_ptr<StopRule> make_stop_rule(const StopRuleSpec& spec) {
  if (spec.time_ns <= 0) throw CallerError("a stop rule's time must be above 0, not " + std::to_string(spec.time_ns));
  if (spec.kind != StopRuleKind::kDuration && spec.samples < 1) {
    throw CallerError("a stop rule's samples must be 1 or more, not " + std::to_string(spec.samples));
  }
  switch (spec.kind) {
    case StopRuleKind::kCount:
      return std::make_unique<CountRule>(spec.samples);
    case StopRuleKind::kInterval:
      if (!(spec.relative_half_width > 0)) {
        throw CallerError("the interval rule's relative half width must be above 0");
      }
      return std::make_unique<IntervalRule>(spec.relative_half_width, spec.samples);
    case StopRuleKind::kDuration:
      return std::make_unique<DurationRule>(spec.time_ns);
  }
  throw CallerError("unknown stop rule");
}

}  // namespace linkgauge
