// Who sends what to whom: each pattern between ranks as the steps of one rank. Pure: knows no device, no transport and
// no memory but offsets in it. What carries the steps out, by channels or messages, is made from them alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/case_spec.h"

namespace linkgauge {

enum class StepKind : std::uint8_t {
  kTransfer,  // a message from `source` to `target`, which may be one rank
  kReduce,    // at `target`: its own operand and those in its scratch, one for each other rank, into its result
};
// Which of a rank's memories an offset is of.
enum class StepMemory : std::uint8_t { kSource, kTarget, kScratch };

struct Step {
  StepKind kind = StepKind::kTransfer;
  StepMemory from = StepMemory::kSource;
  StepMemory into = StepMemory::kTarget;
  // A rank begins a stage when its steps of the one before are over; within a stage none waits for another.
  std::uint8_t stage = 0;
  // Transfers from one rank to another with one number go one after the other; other numbers need not wait for them.
  std::uint8_t queue = 0;
  int source = 0;
  int target = 0;
  std::size_t source_offset = 0;  // in `from` of the source; of a reduction the own operand's
  std::size_t target_offset = 0;  // in `into` of the target
  std::size_t bytes = 0;          // of the message, or of one operand
};

struct Schedule {
  std::vector<Step> steps;        // those that the rank is an end of, in the order in which it begins them
  std::size_t scratch_bytes = 0;  // for operands that are to be reduced here
  // In which some rank of the pattern has a transfer, be it another one.
  std::vector<std::uint8_t> transfer_stages = {0};
};

// One iteration of the pattern on `rank`: rank i sends first to i + 1, then to i + 2, so that not all begin with the
// same target (of what is reduced it sends to i - 1 first). The steps between two ranks come in one order on both. Out
// of place a rank's own block is a transfer to itself where the pattern's result has it (allgather, gather, scatter);
// alltoall leaves it out. Time and memory are of this rank's steps: 2 (n - 1) in an alltoall, 1 where the rank is not
// the root (alltoallv's time: of the matrix). What would carry no bytes is no step. Throws CallerError for patterns
// within one device. The traffic passed why_not_laid_out.
Schedule schedule_of(const Traffic& traffic, int ranks, int rank);

}  // namespace linkgauge
