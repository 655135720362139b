// The text of the direct allreduce as C++: what direct.h needs comes before it, since none of these includes another.
#pragma once

// clang-format off
#include "kernels/values.h"
#include "kernels/elements.h"
#include "kernels/direct.h"
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
