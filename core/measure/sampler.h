// The timed loop as named phases: check, warm up, align, time, record, finished?
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/case_spec.h"
#include "base/words.h"
#include "group/group.h"
#include "measure/block_placement.h"
#include "measure/clock.h"
#include "transport/operation.h"

namespace linkgauge {

enum class Phase : std::uint8_t { kWarmup, kSample, kAlone };  // alone: while the loads beside it rest

// One clock interval on this rank, stored whole (docs/definitions.md, Sample). So it lies in the file of
// SamplerSettings::kept, which run/wire/kept_samples.py reads.
struct Sample {
  std::int64_t scheduled_ns;  // 0 where nothing was scheduled
  std::int64_t start_ns;
  std::int64_t ns;
  std::int64_t iterations;
  std::int32_t number;  // the same on all ranks
  std::int16_t lane;
  Phase phase;
  ClockKind clock;
};
static_assert(sizeof(Sample) == 40);

// Fewer are no measurement: a case with fewer goes on until so many times the stop rule's time and one sample are over.
inline constexpr std::int64_t kFewSamples = 5;

struct Measurement {
  std::vector<Sample> samples;  // of this rank
  bool converged = false;
  bool coarse = false;
  // Several nodes: of the comparisons of their clocks within the case that by which the starts may be farthest wrong.
  std::optional<ClockOffset> least_certain;
  std::int64_t least_certain_ns = 0;    // when it was, of this rank's clock
  std::int64_t operations_total = 0;    // warm-up and verification included
  std::int64_t operations_checked = 0;  // of these, those whose every byte was looked at, by all ranks
  bool verified = false;                // no check failed, on any rank
  VerifyResult verify;     // of the check that failed, on the rank where it failed; `where` says which operation
  std::string stopped_by;  // "count", "interval", "duration", "time" (the rule's time is up), "timeout" (kFewSamples
                           // times its time and one sample gave fewer samples than that), "corrupt" (a check failed)
  int batch = 1;           // operations of a sample: raised to the clock's resolution, or lowered to the rule's time
};

// What a rank is at, for the parent's evidence when it does not get on, and for the hooks of tests. The numbers are
// those of run/wire/heartbeat.py.
enum class Moment : std::uint8_t {
  kIdle,
  kPrepare,
  kCheck,
  kWarmup,
  kAlign,  // this, kRecord and kVerify last too short for a heartbeat: hooks alone see them
  kTime,
  kRecord,
  kLook,
  kFinalCheck,
  kRelease,
  kCompile,  // within kPrepare: kernels that may take tens of seconds
  kOthers,   // waiting for what another job of the case does
  kVerify,
};
template <>
inline constexpr auto kNames<Moment> = names("phase", "idle", "prepare", "check", "warmup", "align", "time", "record",
                                             "finished", "final_check", "release", "compile", "others", "verify");

// Raised in shared memory once per completed sample and phase; the parent process reads it.
struct Heartbeat {
  std::atomic<std::uint64_t>* count = nullptr;  // nullptr: nobody watches
  std::atomic<std::uint64_t>* phase = nullptr;  // a Moment
  void beat() const {
    // One writer: no locked instruction is needed.
    if (count != nullptr) count->store(count->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void enter(Moment moment) const {
    if (phase != nullptr) phase->store(static_cast<std::uint64_t>(moment), std::memory_order_relaxed);
    beat();
  }
};

// For tests only: called before and after the operations of kCheck, kWarmup, kTime and kFinalCheck, and once in kAlign,
// kRecord, kLook and kVerify, with the number of the sample (of Timing::checks the number of the check, from 1; else
// -1) and outside of the clock.
using PhaseHook = std::function<void(Moment phase, std::int64_t sample, bool after)>;

struct SamplerSettings {
  Heartbeat heartbeat;
  PhaseHook hook;  // empty outside of tests
  std::int64_t max_samples = 1'000'000;
  ClockFacts host_clock;                // measured once per process; resolution 0: taken as 1 ns
  ClockFacts event_clock;               // of this rank's device, where the case is timed by events
  DeviceRuntime* runtime = nullptr;     // needed by the cadence `gated` and the clock `event`
  BlockPlacement* placement = nullptr;  // drawn anew before each round; nullptr on all ranks: left as it is
  // Of a case with loads: lets them go on or rest, on all ranks together; empty without. Every round beside them is
  // followed by as many samples alone, so that drift is not taken for their doing.
  std::function<void(bool go_on)> let_loads;
  std::string transport;                         // named where its operations cannot be timed as asked
  Timekeeper timekeeper = Timekeeper::kSlowest;  // of the case's pattern
  int kept = -1;                                 // a file to which this rank adds its samples; -1: none
  int first_lane = 0;                            // added to the operation's own
  std::int64_t clock_age_ns = 60'000'000'000;    // several nodes: the clocks are compared anew after so long, or sooner
};

// Runs an operation (prepared by the caller) under a cadence, an arrival, a clock and a stop rule. Collective
// over `group`. No allocation and no I/O in a timed region. Throws what the operation throws, after telling the other
// ranks.
Measurement sample(Operation& operation, Group& group, const Timing& timing, const SamplerSettings& settings);

}  // namespace linkgauge
