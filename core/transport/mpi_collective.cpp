#include "transport/mpi_collective.h"

#include "errors.h"

namespace linkgauge {

bool has_mpi_collective(Pattern pattern) { return pattern >= Pattern::kAlltoall && pattern <= Pattern::kScatter; }

std::string why_not_mpi_collective(const MpiLibrary& mpi, const CaseSpec& spec, int ranks) {
  const std::size_t block = block_bytes(spec, ranks);
  if (reduces(spec.pattern)) return mpi.why_not_reduction(spec.datatype, spec.op, block / size_of(spec.datatype));
  return mpi.why_not_size(block);
}

LayoutRules mpi_layout_rules(bool own_block) { return {own_block, true}; }

MpiCollectiveCall::MpiCollectiveCall(MpiLibrary& mpi, std::uint64_t communicator, const CaseSpec& spec, int ranks,
                                     int rank, bool own_block)
    : mpi_(&mpi),
      communicator_(communicator),
      pattern_(spec.pattern),
      datatype_(spec.datatype),
      op_(spec.op),
      root_(spec.root),
      is_root_(rank == spec.root),
      in_place_(spec.in_place),
      own_block_(own_block),
      block_(block_bytes(spec, ranks)),
      elements_(block_ / size_of(spec.datatype)) {
  if (pattern_ != Pattern::kAlltoall || own_block_) return;
  counts_ = alltoallv_counts(block_, rank, ranks);
  unit_ = mpi.contiguous_type(counts_.unit_bytes);
}

void MpiCollectiveCall::run(const void* source, void* target) {
  const void* send = in_place_ ? nullptr : source;
  switch (pattern_) {
    case Pattern::kAlltoall:
      if (own_block_) {
        mpi_->alltoall(source, target, block_, communicator_);
      } else {
        mpi_->alltoallv(source, target, counts_, unit_, communicator_);
      }
      return;
    case Pattern::kAllreduce:
      mpi_->allreduce(send, target, elements_, datatype_, op_, communicator_);
      return;
    case Pattern::kAllgather:
      mpi_->allgather(send, target, block_, communicator_);
      return;
    case Pattern::kReduceScatter:
      mpi_->reduce_scatter_block(send, target, elements_, datatype_, op_, communicator_);
      return;
    case Pattern::kBroadcast:  // MPI has one buffer here: what the root sends, what the others receive
      mpi_->broadcast(is_root_ ? const_cast<void*>(source) : target, block_, root_, communicator_);
      return;
    case Pattern::kReduce:
      mpi_->reduce(is_root_ ? send : source, target, elements_, datatype_, op_, root_, communicator_);
      return;
    case Pattern::kGather:
      mpi_->gather(is_root_ ? send : source, target, block_, root_, communicator_);
      return;
    case Pattern::kScatter:
      mpi_->scatter(source, is_root_ && in_place_ ? nullptr : target, block_, root_, communicator_);
      return;
    default:
      throw CallerError("MPI has no collective for " + std::string(to_string(pattern_)));
  }
}

}  // namespace linkgauge
