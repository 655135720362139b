// What takes a core away from a thread that does nothing but read the clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace linkgauge {

struct Detours {
  std::vector<std::int64_t> start_ns;  // of each, on the host clock
  std::vector<std::int64_t> ns;        // how long it was
  std::int64_t span_ns = 0;            // how long was looked; less than asked where there were too many
  std::int64_t quantum_ns = 0;         // between two reads when nothing comes between: the least seen
};

// Reads the clock over and over for `span_ns`; each gap of `least_ns` and more between two reads is a detour (the
// selfish detour benchmark: Hoefler, Schneider, Lumsdaine, SC'10, section II). Ends early after `most` of them.
Detours find_detours(std::int64_t span_ns, std::int64_t least_ns, std::size_t most = 1'000'000);

}  // namespace linkgauge
