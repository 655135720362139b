// The text of the direct allreduces as C++: what each needs comes before it, since none of these includes another.
#pragma once

#include <atomic>

// clang-format off
#include "kernels/values.h"
#include "kernels/elements.h"
#include "kernels/direct.h"
#include "kernels/push.h"
// clang-format on

namespace linkgauge::direct {

// Reduces a part inline, where no device's registers must be spared.
template <typename Exec>
struct PartReducer {
  Exec& exec;
  const Places& places;
  const Job& job;
  Part part = {0, 0};
  int writes = 1;
  template <u32 kDatatype>
  void run() {
    reduce_part<kDatatype>(exec, places, job.ranks, job.rank, part, writes, job.op);
  }
};

}  // namespace linkgauge::direct

namespace linkgauge::push {

// What an Exec does with lines where a thread of this machine plays a device's.
struct LinesOfCores {
  Line load_line(const Line* place) const {
    auto* line = const_cast<Line*>(place);
    return {{std::atomic_ref<u64>(line->halves[0]).load(std::memory_order_relaxed),
             std::atomic_ref<u64>(line->halves[1]).load(std::memory_order_relaxed)}};
  }
  void store_line(Line* place, const Line& line) const {
    std::atomic_ref<u64>(place->halves[0]).store(line.halves[0], std::memory_order_relaxed);
    std::atomic_ref<u64>(place->halves[1]).store(line.halves[1], std::memory_order_relaxed);
  }
  u64 count(u64* place) const { return std::atomic_ref<u64>(*place).fetch_add(1, std::memory_order_acq_rel); }
};

}  // namespace linkgauge::push
