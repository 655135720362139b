// What MPI's calls with a count for each peer are given.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "traffic/distribution.h"

namespace linkgauge {

// MPI's counts are ints; above, sizes are counted in blocks.
inline constexpr std::size_t kMostMpiCount = std::numeric_limits<int>::max();
inline constexpr std::size_t kMpiBlockBytes = std::size_t{1} << 20;

// What MPI_Alltoallv is given. Its numbers are 32 bits wide, its unit a type of `unit_bytes` contiguous bytes: 1 where
// all blocks together are that few, else 1 MiB or, where a block is not whole such, a block.
struct AlltoallvCounts {
  struct Side {
    std::vector<int> counts;         // for each peer, in units
    std::vector<int> displacements;  // in units
  };
  Side sent;
  Side received;
  std::size_t unit_bytes = 1;
};
// A count of 0 for the block of `rank`, this one; -1 for none. `block` passed why_not_size; throws CallerError where no
// unit fits.
AlltoallvCounts alltoallv_counts(std::size_t block, int rank, int ranks);
// Of a traffic matrix, which passed why_not_mpi_collective; the unit is a vector where bytes are too many.
inline constexpr std::size_t kCountedVectorBytes = 16;
AlltoallvCounts alltoallv_counts(const AlltoallvShare& share);
// Of a halo exchange, by edge: `sources` and `targets` get the ranks at their other ends.
AlltoallvCounts halo_counts(const HaloShare& share, std::vector<int>& sources, std::vector<int>& targets);

}  // namespace linkgauge
