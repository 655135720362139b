#include "mpi/counts.h"

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace linkgauge {

AlltoallvCounts alltoallv_counts(std::size_t block, int rank, int ranks) {
  AlltoallvCounts result;
  const auto count = static_cast<std::size_t>(ranks);
  if (block > kMostMpiCount / count) result.unit_bytes = block % kMpiBlockBytes == 0 ? kMpiBlockBytes : block;
  // Beyond, all of them in pieces of 1 MiB are still too many numbers.
  if (block / result.unit_bytes > kMostMpiCount / count) result.unit_bytes = block;
  if (result.unit_bytes > kMostMpiCount) {
    throw CallerError("MPI has no unit for blocks of " + std::to_string(block) + " bytes of " + std::to_string(ranks) +
                      " ranks");
  }
  const auto units = static_cast<int>(block / result.unit_bytes);
  for (int peer = 0; peer < ranks; ++peer) {
    result.sent.counts.push_back(peer == rank ? 0 : units);
    result.sent.displacements.push_back(peer * units);
  }
  result.received = result.sent;
  return result;
}

AlltoallvCounts alltoallv_counts(const AlltoallvShare& share) {
  AlltoallvCounts result;
  if (std::max(share.source_bytes, share.target_bytes) > kMostMpiCount) result.unit_bytes = kCountedVectorBytes;
  const auto in_units = [&](const std::vector<std::size_t>& bytes) {
    std::vector<int> units;
    for (const std::size_t one : bytes) units.push_back(static_cast<int>(one / result.unit_bytes));
    return units;
  };
  result.sent = {in_units(share.sent), in_units(share.sent_at)};
  result.received = {in_units(share.received), in_units(share.received_at)};
  return result;
}

AlltoallvCounts halo_counts(const HaloShare& share, std::vector<int>& sources, std::vector<int>& targets) {
  AlltoallvCounts result;
  const auto add = [](const HaloMessage& message, AlltoallvCounts::Side& side, std::vector<int>& peers) {
    if (message.peer < 0) return;
    peers.push_back(message.peer);
    side.counts.push_back(static_cast<int>(message.bytes));
    side.displacements.push_back(static_cast<int>(message.own_at));
  };
  for (const HaloMessage& message : share.sent) add(message, result.sent, targets);
  for (const HaloMessage& message : share.received) add(message, result.received, sources);
  return result;
}

}  // namespace linkgauge
