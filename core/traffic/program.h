// One rank's part of an application: what src/linkgauge/apps makes of a step file (docs/reference/step-files.md). Pure:
// knows no device, no transport, and no memory but offsets in it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/case_spec.h"

namespace linkgauge {

// In the order of their numbers in src/linkgauge/apps/rows.py.
enum class ProgramKind : std::uint8_t {
  kCompute,     // without a queue: `amount` ns of the host's thread; in one: `amount` bytes copied within the device
  kCopy,        // by the copy engine; `which` is a CopyDirection; without a queue the host waits for it
  kSend,        // posted; `which` is a flow
  kReceive,     // posted
  kWait,        // for all messages, and collectives begun, that this rank has posted
  kCollective,  // `which` is one of Program::collectives; where that is `begun` the next wait completes it
  kSync,        // the host waits for what is in the queue
  kAfter,       // what the queue gets later waits for what queue `which` has now
  kLoop,        // the steps up to the matching end, `amount` times
  kEnd,
};
inline constexpr std::int64_t kProgramKinds = 10;
enum class CopyDirection : std::uint8_t { kIntoDevice, kOutOfDevice, kWithinDevice };
inline constexpr std::size_t kCopyDirections = 3;

struct ProgramStep {
  ProgramKind kind = ProgramKind::kWait;
  std::int64_t which = 0;
  std::int64_t queue = -1;  // below 0: none
  std::int64_t amount = 0;  // bytes, ns or times
  std::int64_t offset = 0;  // of a copy and of a compute in a queue: in both of its buffers
};

// The messages from one rank to another. Message number k of an iteration goes from slot k mod `slots` of the source's
// buffer to that of the target's, so that both ends know both places.
struct ProgramFlow {
  int source = 0;
  int target = 0;
  std::size_t source_base = 0;
  std::size_t target_base = 0;
  std::size_t stride = 0;  // of slots: the largest message
  int slots = 1;
};

// What must have arrived in this rank's target buffer: the bytes that lie at `source_offset` of the source's buffer.
struct ProgramArrival {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  int source = 0;
  std::uint64_t source_offset = 0;
};

// What copies must have brought into the buffer at their end, from the same offsets of the other one.
struct ProgramCopied {
  std::size_t direction = 0;  // CopyDirection
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

struct ProgramCollective {
  Pattern pattern = Pattern::kBarrier;
  std::int64_t size_bytes = 0;
  int root = 0;  // its place in `ranks`
  std::string distribution;
  std::vector<int> ranks;  // of the case
  bool begun = false;
  bool in_place = false;  // of an allgather: what is done again in an iteration must find its operands again
};

struct Program {
  std::vector<ProgramStep> steps;
  std::vector<ProgramFlow> flows;  // that this rank is an end of, each pair of ranks once each way
  std::vector<ProgramArrival> arrivals;
  std::vector<ProgramCopied> copied;
  std::vector<ProgramCollective> collectives;  // of all ranks, the same on each
  std::size_t source_bytes = 0;                // of messages
  std::size_t target_bytes = 0;
  std::size_t copy_bytes[kCopyDirections] = {};  // of the buffers at both ends of copies each way
  int queues = 0;
};

inline constexpr std::size_t kDeepestLoop = 8;

// Calls `each` for the program's steps in turn, those of loops as often as these go round. Its loops must nest.
template <typename Do>
void for_each_step(const Program& program, const Do& each) {
  struct Loop {
    std::size_t begin;
    std::int64_t left;
  };
  const std::vector<ProgramStep>& steps = program.steps;
  std::array<Loop, kDeepestLoop> loops;
  std::size_t depth = 0;
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const ProgramStep& step = steps[at];
    if (step.kind == ProgramKind::kLoop) {
      loops[depth++] = {at, step.amount};
    } else if (step.kind == ProgramKind::kEnd) {
      if (--loops[depth - 1].left > 0) {
        at = loops[depth - 1].begin;
      } else {
        --depth;
      }
    } else {
      each(step);
    }
  }
}

// Throws CallerError where a step names what the program does not have, or loops do not nest: what post() relies on.
void check_program(const Program& program, int ranks, int rank);

}  // namespace linkgauge
