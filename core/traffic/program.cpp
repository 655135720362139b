#include "traffic/program.h"

#include <algorithm>

#include "base/errors.h"
#include "base/patterns.h"

namespace linkgauge {
namespace {

[[noreturn]] void refuse_program(const std::string& what, std::size_t place, const std::string& expected) {
  throw CallerError("program: " + what + " " + std::to_string(place) + ": expected " + expected);
}

bool within(std::int64_t value, std::size_t end) { return value >= 0 && value < static_cast<std::int64_t>(end); }

bool fits(std::int64_t offset, std::int64_t bytes, std::size_t size) {
  const auto most = static_cast<std::int64_t>(size);
  return offset >= 0 && bytes >= 0 && bytes <= most && offset <= most - bytes;
}

void check_step(const Program& program, const ProgramStep& step, std::size_t place, int rank) {
  if (step.amount < 0) refuse_program("step", place, "an amount of 0 or more");
  if (step.queue >= program.queues) refuse_program("step", place, "a queue of the program");
  switch (step.kind) {
    case ProgramKind::kCompute:
    case ProgramKind::kCopy: {
      if (step.kind == ProgramKind::kCompute && step.queue < 0) return;
      const bool copies = step.kind == ProgramKind::kCopy;
      if (copies && !within(step.which, kCopyDirections)) refuse_program("step", place, "a direction of copies");
      const std::size_t direction =
          copies ? static_cast<std::size_t>(step.which) : static_cast<std::size_t>(CopyDirection::kWithinDevice);
      if (!fits(step.offset, step.amount, program.copy_bytes[direction]))
        refuse_program("step", place, "bytes of its buffers");
      return;
    }
    case ProgramKind::kSend:
    case ProgramKind::kReceive: {
      if (!within(step.which, program.flows.size())) refuse_program("step", place, "a flow of the program");
      const ProgramFlow& flow = program.flows[static_cast<std::size_t>(step.which)];
      if ((step.kind == ProgramKind::kSend ? flow.source : flow.target) != rank)
        refuse_program("step", place, "an end here");
      if (!fits(0, step.amount, flow.stride)) refuse_program("step", place, "a message that fits its slot");
      return;
    }
    case ProgramKind::kCollective: {
      if (!within(step.which, program.collectives.size())) refuse_program("step", place, "a collective of the program");
      const std::vector<int>& ranks = program.collectives[static_cast<std::size_t>(step.which)].ranks;
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end())
        refuse_program("step", place, "a collective of this rank");
      return;
    }
    case ProgramKind::kAfter:
      if (step.queue < 0 || !within(step.which, static_cast<std::size_t>(program.queues))) {
        refuse_program("step", place, "two queues of the program");
      }
      return;
    case ProgramKind::kWait:
    case ProgramKind::kSync:
    case ProgramKind::kLoop:
    case ProgramKind::kEnd:
      return;
  }
}

void check_nesting(const Program& program) {
  std::size_t depth = 0;
  for (std::size_t place = 0; place < program.steps.size(); ++place) {
    const ProgramStep& step = program.steps[place];
    if (step.kind == ProgramKind::kLoop) {
      if (++depth > kDeepestLoop)
        refuse_program("step", place, "at most " + std::to_string(kDeepestLoop) + " loops in one");
      if (step.amount < 1) refuse_program("step", place, "a loop of 1 turn or more");
    }
    if (step.kind == ProgramKind::kEnd && depth-- == 0) refuse_program("step", place, "an end of a loop");
  }
  if (depth != 0) refuse_program("step", program.steps.size(), "as many ends as loops");
}

}  // namespace

void check_program(const Program& program, int ranks, int rank) {
  for (std::size_t place = 0; place < program.flows.size(); ++place) {
    const ProgramFlow& flow = program.flows[place];
    const auto known = static_cast<std::size_t>(ranks);
    const bool mine = (flow.source == rank) != (flow.target == rank);
    if (!within(flow.source, known) || !within(flow.target, known) || !mine)
      refuse_program("flow", place, "one end here");
    const std::size_t size = flow.source == rank ? program.source_bytes : program.target_bytes;
    const std::size_t base = flow.source == rank ? flow.source_base : flow.target_base;
    const bool fitting = flow.slots > 0 && flow.stride > 0 && base <= size &&
                         flow.stride <= (size - base) / static_cast<std::size_t>(flow.slots);
    if (!fitting) refuse_program("flow", place, "slots within its buffer");
  }
  for (std::size_t place = 0; place < program.arrivals.size(); ++place) {
    const ProgramArrival& piece = program.arrivals[place];
    const bool fitting = piece.bytes <= program.target_bytes && piece.offset <= program.target_bytes - piece.bytes;
    if (!fitting || !within(piece.source, static_cast<std::size_t>(ranks)))
      refuse_program("arrival", place, "bytes here");
  }
  for (std::size_t place = 0; place < program.copied.size(); ++place) {
    const ProgramCopied& one = program.copied[place];
    const bool fitting = one.direction < kCopyDirections && one.bytes <= program.copy_bytes[one.direction] &&
                         one.offset <= program.copy_bytes[one.direction] - one.bytes;
    if (!fitting) refuse_program("copied piece", place, "bytes of its buffer");
  }
  for (std::size_t place = 0; place < program.collectives.size(); ++place) {
    const ProgramCollective& one = program.collectives[place];
    const bool known = std::all_of(one.ranks.begin(), one.ranks.end(),
                                   [&](int member) { return within(member, static_cast<std::size_t>(ranks)); });
    if (!known || one.ranks.size() < 2) refuse_program("collective", place, "two or more ranks of the case");
    if (!within(one.root, one.ranks.size())) refuse_program("collective", place, "a root among its ranks");
    if (!traits_of(one.pattern).in_groups) refuse_program("collective", place, "a pattern of all its ranks");
  }
  check_nesting(program);
  for (std::size_t place = 0; place < program.steps.size(); ++place) {
    check_step(program, program.steps[place], place, rank);
  }
}

}  // namespace linkgauge
