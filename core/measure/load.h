// A load: a job of the case that goes on beside the measured one until that has its samples.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/case_spec.h"
#include "base/not_copied.h"
#include "group/group.h"
#include "measure/sampler.h"
#include "mpi/library.h"
#include "transport/operation.h"

namespace linkgauge {

// What the measured job wants of a load: numbers that rise from kAtRate. Odd ones: rest; even ones: go on.
inline constexpr std::int64_t kAtRate = 0;  // for long enough alone
inline constexpr std::int64_t kOver = INT64_MAX;

// Between the first ranks of the measured job and of one load: the one says what it wants, the other what is so.
// Neither waits.
class JobLine : NotCopied {
 public:
  virtual ~JobLine() = default;

  virtual void say(std::int64_t number) = 0;
  virtual std::int64_t heard() = 0;  // the last number that the other end said; -1: none yet
  // Whether a load was over before it said that it was at its rate. In one launch that is known otherwise.
  virtual bool never_at_rate() const { return false; }
};

// Between two ranks of one launch, by words in shared memory, across nodes by messages.
class RankLine final : public JobLine {
 public:
  // `place`: of the load's first rank in `everyone`, the ranks of all jobs, of which 0 is the measured job's first.
  // `launch_ranks`: of everyone. `tag`: the first of two of MPI's world that are this line's alone.
  RankLine(Group& everyone, int place, const std::vector<int>& launch_ranks, MpiLibrary* mpi, int tag);

  void say(std::int64_t number) override;
  std::int64_t heard() override;

 private:
  void listen();

  std::atomic<std::uint64_t>* said_;  // one more than the number; nullptr across nodes
  std::atomic<std::uint64_t>* heard_;
  MpiLibrary* mpi_;
  int other_;  // the other end's rank of the launch
  int own_tag_;
  int other_tag_;
  std::unique_ptr<MpiRequests> receive_;
  std::int64_t coming_ = -1;
  std::int64_t last_ = -1;
};

// Between two launches, by a connected socket that the caller keeps: each number as 8 bytes, little-endian. An other
// end that is gone is over.
class SocketLine final : public JobLine {
 public:
  explicit SocketLine(int socket) : socket_(socket) {}

  void say(std::int64_t number) override;
  std::int64_t heard() override;
  bool never_at_rate() const override { return last_ == kOver && first_ != kAtRate; }

 private:
  int socket_;
  std::int64_t first_ = -1;
  std::int64_t last_ = -1;
};

// So many operations on this rank, one after the other.
struct Stretch {
  enum class When : std::uint8_t { kAlone, kBetween, kBeside };  // beside the measured job's samples
  std::int64_t start_ns;
  std::int64_t ns;
  std::int64_t operations;
  When when;
};

struct LoadReport {
  int number = 0;                    // of the case's loads, from 1; 0: this rank played no load
  std::vector<Stretch> stretches;    // of this rank
  std::int64_t beside_from_ns = 0;   // stretches that began later, and ended before `beside_until_ns`, were beside the
  std::int64_t beside_until_ns = 0;  // measured job; those that ended before `beside_from_ns` were alone
  std::int64_t operations_total = 0;
  bool verified = false;  // the first and the last operation, on every rank
  VerifyResult verify;    // of the check that failed, on the rank where it failed
  std::string failure;    // what ended the load before the measured job was over; empty: nothing
};

// Runs the load's operation (prepared by the caller) at its pace, of its timing the batch and the seed, as the measured
// job wants it, until that is over. Collective over `group`, the load's own ranks. `line`: of the first rank, nullptr
// on the others. Throws PeerError where another job failed, and what the load itself fails with before it was at its
// rate; later that is told in the report, and the measured job goes on.
LoadReport keep_on(Operation& operation, Group& group, Group& everyone, const Timing& timing, const Pace& pace,
                   JobLine* line, const SamplerSettings& settings);

// The measured job's hand on all loads; its first rank alone has lines. Of a load that is over before it was at its
// rate it throws PeerError.
class LoadControl {
 public:
  LoadControl(const std::vector<std::unique_ptr<JobLine>>& lines, Group& everyone)
      : lines_(lines), everyone_(everyone) {}
  // Return when every load is as it is wanted, or has failed. Throw PeerError where a job failed.
  void wait_until_at_rate() { want(kAtRate); }
  void let(bool go_on);
  void end() noexcept;

 private:
  void want(std::int64_t number);

  const std::vector<std::unique_ptr<JobLine>>& lines_;
  Group& everyone_;
  std::int64_t wanted_ = kAtRate;
};

}  // namespace linkgauge
