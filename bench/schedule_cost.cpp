// What it takes to know one rank's part of a pattern between many ranks (core/traffic/schedule.h).
//
//   ./schedule_cost [RANKS]   prints a line of JSON for each pattern: microseconds and bytes of one rank, the most of
//   three
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "traffic/schedule.h"

int main(int argc, char** argv) {
  using linkgauge::Pattern;
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 10'000;
  if (ranks < 2) return 2;
  for (const Pattern pattern : {Pattern::kRingShift, Pattern::kAlltoall, Pattern::kAllgather, Pattern::kReduceScatter,
                                Pattern::kAllreduce, Pattern::kBroadcast}) {
    const linkgauge::Traffic traffic{.pattern = pattern, .size_bytes = std::int64_t{8} * ranks};
    double most_us = 0;
    std::size_t most_bytes = 0;
    for (const int rank : {0, ranks / 2, ranks - 1}) {
      double least_us = 1e9;
      for (int turn = 0; turn < 20; ++turn) {
        const auto start = std::chrono::steady_clock::now();
        const linkgauge::Schedule schedule = linkgauge::schedule_of(traffic, ranks, rank);
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        least_us = std::min(least_us, took.count());
        most_bytes = std::max(most_bytes, schedule.steps.capacity() * sizeof(linkgauge::Step));
      }
      most_us = std::max(most_us, least_us);
    }
    std::printf("{\"pattern\": \"%s\", \"ranks\": %d, \"us\": %.1f, \"bytes\": %zu}\n",
                std::string(to_string(pattern)).c_str(), ranks, most_us, most_bytes);
  }
}
