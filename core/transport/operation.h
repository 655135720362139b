// One operation of a case on one rank: what the sampler times. Written once per pattern over channels (operation/), or
// brought by a transport with collectives of its own.
//
// Verbs in the order of their use: prepare, fill, (post, complete)*, verify, release. prepare and release are
// collective over the group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/case_spec.h"
#include "base/not_copied.h"
#include "transport/transport.h"

namespace linkgauge {

struct VerifyResult {
  bool ok = true;
  std::uint64_t bad_bytes = 0;
  std::uint64_t first_bad_offset = 0;  // bytes, in this rank's target buffer
  std::uint64_t expected = 0;          // raw bits of the element there
  std::uint64_t found = 0;
  std::string where;  // which buffer, from which rank

  // Adds wrong bytes; of the first it tells where they are, and what was due and was found there.
  void add(std::uint64_t bytes, std::uint64_t offset, std::uint64_t due, std::uint64_t seen, std::string_view of) {
    if (ok) {
      first_bad_offset = offset;
      expected = due;
      found = seen;
      where = of;
    }
    ok = false;
    bad_bytes += bytes;
  }
};

// What of an application's time this rank spent in steps of one kind: ns of an iteration, their median.
struct StepTime {
  const char* kind;
  std::int64_t ns;
};

// Steps of one kind that followed each other, of the iteration that was checked last; this rank's clock, in ns.
struct StepSpan {
  const char* kind;
  std::int64_t begin_ns;
  std::int64_t end_ns;
};

struct StepReport {
  std::vector<StepTime> times;
  std::vector<StepSpan> spans;  // the first so many
};

class Operation : NotCopied {
 public:
  virtual ~Operation() = default;

  virtual void prepare() = 0;
  // A new data pattern from `seed` in what is sent, fresh poison in what is received.
  virtual void fill(std::uint64_t seed) = 0;
  // Untimed, before each sample: puts back what an operation moved for good (pages of managed memory).
  virtual void put_back() {}
  // Queues one iteration on this rank.
  virtual void post() = 0;
  // Returns when the bytes of all posted iterations are where they belong, as the pattern's timekeeper must know it.
  virtual void complete() = 0;
  // Every byte of what this rank received by the last iteration since fill(seed).
  virtual VerifyResult verify(std::uint64_t seed) = 0;
  virtual void release() noexcept = 0;

  // The lane that this rank times, or -1: it takes part but keeps no time (docs/definitions.md, timekeepers).
  virtual int lane() const = 0;
  // How many of what the pattern's time is of are in one post(): loads of a chase, round trips of flags, else one.
  virtual std::int64_t steps() const { return 1; }
  virtual Progress progress() const = 0;

  // Gated cadence and event clock: the streams that post() queues on, with their device. Empty: not possible.
  using DeviceQueue = linkgauge::DeviceQueue;
  virtual std::vector<DeviceQueue> queues() const { return {}; }
  // Commands that one post() puts into one of them, at most: a held queue takes so many and no more.
  virtual int commands_per_post() const { return 1; }
  // Of an application: its times over the `iterations` before the last one, which is the final check. Empty for other
  // patterns.
  virtual StepReport step_report(std::size_t /*iterations*/) const { return {}; }
  // The library's own barrier for cadence `barrier`; falls back on the group's.
  virtual void library_barrier() = 0;
};

// One of a case, and what it has at hand on this rank.
class CaseOperation : public Operation {
 public:
  CaseOperation(const RankContext& context, const CaseSpec& spec) : context_(context), spec_(spec) {}

  // MPI's, where ranks have it.
  void library_barrier() override;

 protected:
  const RankContext& context() const { return context_; }
  const CaseSpec& spec() const { return spec_; }
  const Traffic& traffic() const { return spec_.traffic; }
  const Mechanism& mechanism() const { return spec_.mechanism; }
  Group& group() const { return *context_.group; }
  DeviceRuntime& runtime() const { return *context_.runtime; }
  int device() const { return context_.device(); }
  int rank() const { return context_.rank(); }
  int ranks() const { return context_.size(); }

 private:
  RankContext context_;
  CaseSpec spec_;
};

}  // namespace linkgauge
