#include "operation/step_times.h"

#include <algorithm>

namespace linkgauge {

StepReport StepTimes::report(std::size_t iterations) const {
  StepReport result;
  result.spans = spans_;
  const std::size_t known = std::min(iterations_, kKeptIterations);
  if (known < 2) return result;
  const std::size_t count = std::min(iterations, known - 1);
  std::vector<std::int64_t> times(count);
  for (std::size_t kind = 0; kind < kStepKinds.size() && count > 0; ++kind) {
    for (std::size_t back = 0; back < count; ++back) {
      times[back] = spent_[(iterations_ - 2 - back) % kKeptIterations][kind];
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(times.begin(), middle, times.end());
    result.times.push_back({kStepKinds[kind], *middle});
  }
  return result;
}

}  // namespace linkgauge
