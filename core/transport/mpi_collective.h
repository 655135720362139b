// A case's pattern as one call of the MPI library's own collective, on buffers that are given: the transport mpi calls
// it on the case's buffers, staging on pinned copies of them.
#pragma once

#include <cstddef>
#include <string>

#include "case_spec.h"
#include "pattern/layout.h"
#include "transport/mpi_library.h"

namespace linkgauge {

bool has_mpi_collective(Pattern pattern);  // alltoall to scatter
// "" or why MPI cannot do this case in one call.
std::string why_not_mpi_collective(const MpiLibrary& mpi, const CaseSpec& spec, int ranks);
// How MPI lays data out; `own_block` false is MPI_Alltoallv with a count of 0 for it.
LayoutRules mpi_layout_rules(bool own_block);

class MpiCollectiveCall {
 public:
  MpiCollectiveCall(MpiLibrary& mpi, std::uint64_t communicator, const CaseSpec& spec, int ranks, int rank,
                    bool own_block);
  // Blocks until this rank's part is over. A buffer that this rank does not have may be nullptr.
  void run(const void* source, void* target);

 private:
  MpiLibrary* mpi_;
  std::uint64_t communicator_;
  Pattern pattern_;
  Datatype datatype_;
  ReduceOp op_;
  int root_;
  bool is_root_;
  bool in_place_;
  bool own_block_;
  std::size_t block_;       // bytes
  std::size_t elements_;    // of a block
  AlltoallvCounts counts_;  // of an alltoall that leaves the own block out
  std::uint64_t unit_ = 0;  // MPI's datatype of them
};

}  // namespace linkgauge
