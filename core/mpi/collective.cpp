#include "mpi/collective.h"

#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "base/patterns.h"
#include "traffic/distribution.h"

namespace linkgauge {

namespace {

constexpr const char* kTooMany =
    "MPI counts are 32 bits wide: above 2 GiB a rank an alltoallv's size must be a multiple of "
    "16 bytes, and none may have more than 32 GiB; here one has ";

// The same answer on every rank: of the one with the most bytes.
std::string why_not_counted(const Traffic& traffic, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  if (traffic.bytes() <= kMostMpiCount / (n * n)) return "";
  const RankBytes bytes = rank_bytes(traffic, ranks);
  const std::size_t most = std::max(*std::max_element(bytes.sent.begin(), bytes.sent.end()),
                                    *std::max_element(bytes.received.begin(), bytes.received.end()));
  const std::size_t countable =
      traffic.bytes() % kCountedVectorBytes == 0 ? kCountedVectorBytes * kMostMpiCount : kMostMpiCount;
  return most <= countable ? "" : kTooMany + std::to_string(most);
}

}  // namespace

std::string why_not_mpi_collective(const MpiLibrary& mpi, const Traffic& traffic, int ranks) {
  if (traffic.pattern == Pattern::kBarrier) return "";
  if (traffic.pattern == Pattern::kAlltoallv) return why_not_counted(traffic, ranks);
  if (traffic.pattern == Pattern::kHalo) {
    const std::size_t bytes = halo_share(traffic, ranks, 0).buffer_bytes;
    return bytes <= kMostMpiCount
               ? ""
               : "MPI counts are 32 bits wide: a halo's neighbors have at most 2 GiB together, here " +
                     std::to_string(bytes);
  }
  const std::size_t block = block_bytes(traffic, ranks);
  if (traits_of(traffic.pattern).reduces)
    return mpi.why_not_reduction(traffic.datatype, traffic.op, block / size_of(traffic.datatype));
  return mpi.why_not_size(block);
}

LayoutRules mpi_layout_rules(const Traffic& traffic, AlltoallCall call) {
  return {.own_block = call != AlltoallCall::kAlltoallv,
          .reduced_to_front = true,
          .no_bytes = traffic.pattern == Pattern::kBarrier};
}

MpiCollectiveCall::MpiCollectiveCall(MpiLibrary& mpi, std::uint64_t communicator, const Traffic& traffic, int ranks,
                                     int rank, AlltoallCall call)
    : mpi_(&mpi),
      communicator_(communicator),
      traffic_(traffic),
      is_root_(rank == traffic_.root),
      block_(block_bytes(traffic_, ranks)),
      elements_(block_ / size_of(traffic_.datatype)) {
  if (traffic_.pattern == Pattern::kAlltoallv) {
    counts_ = alltoallv_counts(alltoallv_share(traffic_, ranks, rank));
  } else if (traffic_.pattern == Pattern::kHalo) {
    std::vector<int> sources;
    std::vector<int> targets;
    counts_ = halo_counts(halo_share(traffic_, ranks, rank), sources, targets);
    neighbors_ = mpi.neighbors(communicator, sources, targets);
  } else if (traffic_.pattern == Pattern::kAlltoall && call != AlltoallCall::kAlltoall) {
    counts_ = alltoallv_counts(block_, call == AlltoallCall::kAlltoallvOwn ? -1 : rank, ranks);
  } else {
    return;
  }
  counted_ = true;
  unit_ = mpi.contiguous_type(counts_.unit_bytes);
}

MpiCollectiveCall::~MpiCollectiveCall() {
  if (neighbors_ == 0) return;
  try {
    mpi_->comm_free(neighbors_);
  } catch (const Error&) {  // the library is failing already; what failed first has been reported
  }
}

void MpiCollectiveCall::run(const void* source, void* target, MpiRequests* begun) {
  const void* send = traffic_.in_place ? nullptr : source;
  switch (traffic_.pattern) {
    case Pattern::kAlltoall:
      if (!counted_) return mpi_->alltoall(source, target, block_, communicator_, begun);
      [[fallthrough]];
    case Pattern::kAlltoallv:
      return mpi_->alltoallv(source, target, counts_, unit_, communicator_, begun);
    case Pattern::kHalo:
      return mpi_->neighbor_alltoallv(source, target, counts_, unit_, neighbors_, begun);
    case Pattern::kBarrier:
      return mpi_->barrier(communicator_, begun);
    case Pattern::kAllreduce:
      return mpi_->allreduce(send, target, elements_, traffic_.datatype, traffic_.op, communicator_, begun);
    case Pattern::kAllgather:
      return mpi_->allgather(send, target, block_, communicator_, begun);
    case Pattern::kReduceScatter:
      return mpi_->reduce_scatter_block(send, target, elements_, traffic_.datatype, traffic_.op, communicator_, begun);
    case Pattern::kBroadcast:  // MPI has one buffer here: what the root sends, what the others receive
      return mpi_->broadcast(is_root_ ? const_cast<void*>(source) : target, block_, traffic_.root, communicator_,
                             begun);
    case Pattern::kReduce:
      return mpi_->reduce(is_root_ ? send : source, target, elements_, traffic_.datatype, traffic_.op, traffic_.root,
                          communicator_, begun);
    case Pattern::kGather:
      return mpi_->gather(is_root_ ? send : source, target, block_, traffic_.root, communicator_, begun);
    case Pattern::kScatter:
      return mpi_->scatter(source, is_root_ && traffic_.in_place ? nullptr : target, block_, traffic_.root,
                           communicator_, begun);
    default:
      throw CallerError("MPI has no collective for " + std::string(to_string(traffic_.pattern)));
  }
}

}  // namespace linkgauge
