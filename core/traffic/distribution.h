// Whom a rank's bytes go to, where a pattern leaves that open: the traffic matrix of an alltoallv, the grid and the
// neighbours of a halo exchange. Every rank reckons its own share from the same words (docs/definitions.md,
// Distributions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "case_spec.h"

namespace linkgauge {

struct Traffic;  // traffic/schedule.h

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
AlltoallvShare alltoallv_share(const Traffic& traffic, int rank);

// A message between neighbours of a halo exchange.
struct HaloMessage {
  int peer = 0;
  std::size_t bytes = 0;
  std::size_t own_at = 0;   // in the buffer of the rank that asks: its source's to send, its target's to receive
  std::size_t peer_at = 0;  // in the peer's
};
struct HaloShare {
  // By the direction in which they are sent, so that those between two ranks come in one order on both. An entry of
  // either list may have no peer, at an open boundary: peer is then -1.
  std::vector<HaloMessage> sent;
  std::vector<HaloMessage> received;
  std::size_t buffer_bytes = 0;  // of the source, and of the target: a place for every direction
};
// m is the message across a face of the rank's box of cells of 8 bytes: over an edge, or a corner, go as many cells as
// it has. Along a dimension of one rank nothing is sent.
HaloShare halo_share(const Traffic& traffic, int rank);

// Who sends how many bytes to whom in one operation of either pattern: look(source, target, bytes) of each message.
void each_pair(const Traffic& traffic, const std::function<void(int source, int target, std::size_t bytes)>& look);

// Bytes that each rank sends, and that it receives, in one operation of either pattern; by rank.
struct RankBytes {
  std::vector<std::size_t> sent;
  std::vector<std::size_t> received;
};
RankBytes rank_bytes(const Traffic& traffic);

}  // namespace linkgauge
