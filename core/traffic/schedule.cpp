#include "traffic/schedule.h"

#include <string>
#include <utility>

#include "base/errors.h"
#include "base/patterns.h"
#include "traffic/distribution.h"

namespace linkgauge {
namespace {

// One rank's steps while they are written down.
class StepWriter {
 public:
  StepWriter(const Traffic& traffic, int ranks, int rank, std::size_t block)
      : traffic_(traffic), pattern_(moves_as(traffic.pattern)), rank_(rank), ranks_(ranks), block_(block) {}

  Schedule take() { return std::move(schedule_); }

  std::size_t place(int rank) const { return static_cast<std::size_t>(rank) * block_; }
  void reserve(std::size_t steps) { schedule_.steps.reserve(steps); }

  // The transfer, where this rank is an end of it.
  void transfer(int source, int target, std::size_t source_offset, std::size_t target_offset, std::size_t bytes) {
    if ((source != rank_ && target != rank_) || bytes == 0) return;
    schedule_.steps.push_back(
        {StepKind::kTransfer, from_, into_, stage_, queue_, source, target, source_offset, target_offset, bytes});
  }

  // Every rank to every other, distance after distance: make(source, target).
  template <typename Make>
  void to_all(bool with_own, const Make& make) {
    reserve(2 * static_cast<std::size_t>(ranks_));
    if (with_own) make(rank_, rank_);
    for (int shift = 1; shift < ranks_; ++shift) {
      const int to = (rank_ + shift) % ranks_;
      const int from = (rank_ + ranks_ - shift) % ranks_;
      // In the order of the sources, so that both ends of a pair agree.
      if (from < rank_) make(from, rank_);
      make(rank_, to);
      if (from > rank_) make(from, rank_);
    }
  }

  // Every other rank to each, distance after distance: make(source, target), in the order of the targets.
  template <typename Make>
  void from_all(const Make& make) {
    reserve(2 * static_cast<std::size_t>(ranks_));
    for (int shift = 1; shift < ranks_; ++shift) {
      const int to = (rank_ + ranks_ - shift) % ranks_;
      const int from = (rank_ + shift) % ranks_;
      if (to < rank_) make(rank_, to);
      make(from, rank_);
      if (to > rank_) make(rank_, to);
    }
  }

  // Between the root and every other rank, the nearest above it first: make(peer).
  template <typename Make>
  void with_root(int root, bool with_own, const Make& make) {
    if (rank_ != root) return make(rank_);
    reserve(static_cast<std::size_t>(ranks_));
    for (int shift = with_own ? 0 : 1; shift < ranks_; ++shift) make((root + shift) % ranks_);
  }

  // The operand of rank `to` + shift lies in block shift - 1 of `to`'s scratch.
  std::size_t scratch_place(int from, int to) const {
    return static_cast<std::size_t>((from - to + ranks_) % ranks_ - 1) * block_;
  }
  void operands_to(int root) {
    into_ = StepMemory::kScratch;
    with_root(root, false, [&](int peer) { transfer(peer, root, 0, scratch_place(peer, root), block_); });
    into_ = StepMemory::kTarget;
  }
  void reduce_here(std::size_t operand, std::size_t result) {
    schedule_.steps.push_back(
        {StepKind::kReduce, StepMemory::kSource, StepMemory::kTarget, 1, 0, rank_, rank_, operand, result, block_});
    schedule_.scratch_bytes = static_cast<std::size_t>(ranks_ - 1) * block_;
  }

  void write();

 private:
  void write_pairs();
  void write_reduction();
  void write_alltoallv();
  void write_halo();
  void write_barrier();

  Traffic traffic_;
  Pattern pattern_;
  int rank_;
  int ranks_;
  std::size_t block_;
  StepMemory from_ = StepMemory::kSource;
  StepMemory into_ = StepMemory::kTarget;
  std::uint8_t stage_ = 0;
  std::uint8_t queue_ = 0;
  Schedule schedule_;
};

// Ranks 0 and 1, 2 and 3, ...; or the two of a case, which may be one rank.
void StepWriter::write_pairs() {
  const int first = rank_ / 2 * 2;
  const int second = ranks_ == 1 ? 0 : first + 1;
  const std::size_t m = traffic_.bytes();
  transfer(first, second, 0, 0, m);
  if (pattern_ == Pattern::kUnidirectional) return;
  // Both ways at once inside one rank each way has buffers of its own.
  const std::size_t back = pattern_ == Pattern::kBidirectional && ranks_ == 1 ? m : 0;
  if (back > 0) queue_ = 1;
  if (pattern_ == Pattern::kPingpong) {
    stage_ = 1;
    schedule_.transfer_stages = {0, 1};
  }
  transfer(second, first, back, back, m);
}

// Every operand comes to the rank that reduces it; allreduce is a reduction on rank 0 and a broadcast (SC'24's
// reference).
void StepWriter::write_reduction() {
  if (pattern_ == Pattern::kReduceScatter) {
    into_ = StepMemory::kScratch;
    from_all([&](int from, int to) { transfer(from, to, place(to), scratch_place(from, to), block_); });
    const std::size_t own = place(rank_);
    return reduce_here(own, traffic_.in_place ? own : 0);
  }
  const int root = pattern_ == Pattern::kReduce ? traffic_.root : 0;
  operands_to(root);
  if (rank_ == root) reduce_here(0, 0);
  if (pattern_ == Pattern::kReduce) return;
  from_ = StepMemory::kTarget;
  stage_ = 2;
  schedule_.transfer_stages = {0, 2};
  with_root(root, false, [&](int peer) { transfer(root, peer, 0, 0, block_); });
}

void StepWriter::write_alltoallv() {
  const AlltoallvShare share = alltoallv_share(traffic_, ranks_, rank_);
  to_all(false, [&](int from, int to) {
    const auto peer = static_cast<std::size_t>(from == rank_ ? to : from);
    if (from == rank_) {
      transfer(from, to, share.sent_at[peer], share.arrives_at[peer], share.sent[peer]);
    } else {
      transfer(from, to, share.leaves_from[peer], share.received_at[peer], share.received[peer]);
    }
  });
}

void StepWriter::write_halo() {
  const HaloShare share = halo_share(traffic_, ranks_, rank_);
  for (std::size_t k = 0; k < share.sent.size(); ++k) {
    const HaloMessage& out = share.sent[k];
    const HaloMessage& in = share.received[k];
    if (out.peer >= 0) transfer(rank_, out.peer, out.own_at, out.peer_at, out.bytes);
    if (in.peer >= 0) transfer(in.peer, rank_, in.peer_at, in.own_at, in.bytes);
  }
}

// Dissemination: in stage k a rank tells the one 2^k ahead, so that after the last each has heard of all (Hensgen,
// Finkel, Manber, Int. J. Parallel Programming 17, 1988).
void StepWriter::write_barrier() {
  const std::size_t m = traffic_.bytes();
  schedule_.transfer_stages.clear();
  for (int ahead = 1; ahead < ranks_; ahead *= 2, ++stage_) {
    schedule_.transfer_stages.push_back(stage_);
    transfer(rank_, (rank_ + ahead) % ranks_, 0, stage_ * m, m);
    transfer((rank_ + ranks_ - ahead) % ranks_, rank_, 0, stage_ * m, m);
  }
}

void StepWriter::write() {
  const std::size_t m = traffic_.bytes();
  const int root = traffic_.root;
  const bool own = !traffic_.in_place;
  switch (pattern_) {
    case Pattern::kPingpong:
    case Pattern::kUnidirectional:
    case Pattern::kBidirectional:
      return write_pairs();
    case Pattern::kRingShift: {
      const int next = (rank_ + 1) % ranks_;
      const int before = (rank_ + ranks_ - 1) % ranks_;
      if (before < rank_) transfer(before, rank_, 0, 0, m);
      transfer(rank_, next, 0, 0, m);
      if (before > rank_) transfer(before, rank_, 0, 0, m);
      return;
    }
    case Pattern::kOneToAll:
      return with_root(root, false, [&](int peer) { transfer(root, peer, place(peer), 0, m); });
    case Pattern::kAllToOne:
      return with_root(root, false, [&](int peer) { transfer(peer, root, 0, place(peer), m); });
    case Pattern::kAlltoall:
      return to_all(false, [&](int from, int to) { transfer(from, to, place(to), place(from), block_); });
    case Pattern::kBroadcast:
      return with_root(root, false, [&](int peer) { transfer(root, peer, 0, 0, m); });
    case Pattern::kAllgather:
      return to_all(own, [&](int from, int to) { transfer(from, to, own ? 0 : place(from), place(from), block_); });
    case Pattern::kGather:
      return with_root(root, own, [&](int peer) { transfer(peer, root, 0, place(peer), block_); });
    case Pattern::kScatter:
      return with_root(root, own, [&](int peer) { transfer(root, peer, place(peer), 0, block_); });
    case Pattern::kAllreduce:
    case Pattern::kReduce:
    case Pattern::kReduceScatter:
      return write_reduction();
    case Pattern::kAlltoallv:
      return write_alltoallv();
    case Pattern::kHalo:
      return write_halo();
    case Pattern::kBarrier:
      return write_barrier();
    default:
      throw CallerError(std::string(to_string(traffic_.pattern)) + " is not a pattern between ranks");
  }
}

}  // namespace

Schedule schedule_of(const Traffic& traffic, int ranks, int rank) {
  const std::size_t blocks = traits_of(traffic.pattern).cuts_blocks ? static_cast<std::size_t>(ranks) : 1;
  StepWriter part(traffic, ranks, rank, traffic.bytes() / blocks);
  part.write();
  return part.take();
}

}  // namespace linkgauge
