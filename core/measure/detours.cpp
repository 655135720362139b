#include "measure/detours.h"

#include <algorithm>

#include "measure/clock.h"

namespace linkgauge {

Detours find_detours(std::int64_t span_ns, std::int64_t least_ns, std::size_t most) {
  Detours found;
  // Written once before, so that no page of them comes during the look.
  found.start_ns.assign(most, 0);
  found.ns.assign(most, 0);
  std::size_t count = 0;
  std::int64_t quantum_ns = INT64_MAX;
  const std::int64_t begin_ns = now_ns();
  std::int64_t before_ns = begin_ns;
  while (before_ns - begin_ns < span_ns && count < most) {
    const std::int64_t at_ns = now_ns();
    const std::int64_t gap_ns = at_ns - before_ns;
    if (gap_ns >= least_ns) {
      found.start_ns[count] = before_ns;
      found.ns[count++] = gap_ns;
    } else if (gap_ns > 0) {
      quantum_ns = std::min(quantum_ns, gap_ns);
    }
    before_ns = at_ns;
  }
  found.start_ns.resize(count);
  found.ns.resize(count);
  found.span_ns = before_ns - begin_ns;
  found.quantum_ns = quantum_ns == INT64_MAX ? 0 : quantum_ns;
  return found;
}

}  // namespace linkgauge
