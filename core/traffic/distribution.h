// Whom a rank's bytes go to, where a pattern leaves that open: the traffic matrix of an alltoallv, the grid and the
// neighbors of a halo exchange. Every rank reckons its own share from the same words (docs/definitions.md,
// Distributions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/case_spec.h"
#include "traffic/halo.h"

namespace linkgauge {

// Why `text` does not distribute the pattern's bytes over so many ranks, in one sentence; "" if it does, as "" does for
// every pattern: its default.
std::string why_not_distributed(Pattern pattern, const std::string& text, int ranks);

// One rank's part of an alltoallv, by the other rank. Blocks lie in the order of ranks in either buffer.
struct AlltoallvShare {
  std::vector<std::size_t> sent;         // bytes to each; 0 to itself
  std::vector<std::size_t> sent_at;      // where they lie in this rank's source buffer
  std::vector<std::size_t> arrives_at;   // and in that rank's target buffer
  std::vector<std::size_t> received;     // bytes from each
  std::vector<std::size_t> received_at;  // where they lie in this rank's target buffer
  std::vector<std::size_t> leaves_from;  // and in that rank's source buffer
  std::size_t source_bytes = 0;
  std::size_t target_bytes = 0;
};
// All ranks together send n (n - 1) m bytes, cut by the matrix to within one unit a pair: 16 bytes where m is a
// multiple of 16, else 1. Time grows with the square of the ranks, memory with the ranks.
AlltoallvShare alltoallv_share(const Traffic& traffic, int ranks, int rank);

// Who sends how many bytes to whom in one operation of either pattern: look(source, target, bytes) of each message.
void each_pair(const Traffic& traffic, int ranks,
               const std::function<void(int source, int target, std::size_t bytes)>& look);

// Bytes that each rank sends, and that it receives, in one operation of either pattern; by rank.
struct RankBytes {
  std::vector<std::size_t> sent;
  std::vector<std::size_t> received;
};
RankBytes rank_bytes(const Traffic& traffic, int ranks);

}  // namespace linkgauge
