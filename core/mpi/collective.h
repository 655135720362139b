// A case's pattern as one call of the MPI library's own collective, on buffers that are given: the transport mpi calls
// it on the case's buffers, staging on pinned copies of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/case_spec.h"
#include "base/not_copied.h"
#include "mpi/library.h"
#include "traffic/layout.h"

namespace linkgauge {

// "" or why MPI cannot do this case in one call.
std::string why_not_mpi_collective(const MpiLibrary& mpi, const Traffic& traffic, int ranks);
// An alltoall's call: MPI_Alltoall; MPI_Alltoallv with a count of 0 for the own block; or with that block too, as
// osu_alltoallv does.
enum class AlltoallCall : std::uint8_t { kAlltoall, kAlltoallv, kAlltoallvOwn };
// How MPI lays data out.
LayoutRules mpi_layout_rules(const Traffic& traffic, AlltoallCall call = AlltoallCall::kAlltoall);

class MpiCollectiveCall : NotCopied {
 public:
  // Collective over the communicator for a halo, whose neighbors MPI knows.
  MpiCollectiveCall(MpiLibrary& mpi, std::uint64_t communicator, const Traffic& traffic, int ranks, int rank,
                    AlltoallCall call = AlltoallCall::kAlltoall);
  ~MpiCollectiveCall();
  // Blocks until this rank's part is over; with `begun` it gives a request instead (MpiLibrary). A buffer that this
  // rank does not have may be nullptr.
  void run(const void* source, void* target, MpiRequests* begun = nullptr);

 private:
  MpiLibrary* mpi_;
  std::uint64_t communicator_;
  Traffic traffic_;
  bool is_root_;
  bool counted_ = false;         // blocks by counts_
  std::size_t block_;            // bytes
  std::size_t elements_;         // of a block
  AlltoallvCounts counts_;       // of an alltoallv, and of an alltoall that leaves the own block out
  std::uint64_t unit_ = 0;       // MPI's datatype of them
  std::uint64_t neighbors_ = 0;  // a halo's communicator
};

}  // namespace linkgauge
