// The timed loop as named phases: check, warm up, align, time, record, finished?
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "case_spec.h"
#include "group/group.h"
#include "measure/clock.h"
#include "pattern/operation.h"

namespace linkgauge {

enum class Phase : std::uint8_t { kWarmup, kSample };

// One clock interval on this rank, stored whole (docs/definitions.md, Sample).
struct Sample {
  std::int64_t scheduled_ns;  // 0 where nothing was scheduled
  std::int64_t start_ns;
  std::int64_t ns;
  std::int64_t iterations;
  std::int32_t sample;  // number of the sample, the same on all ranks
  std::int16_t lane;
  Phase phase;
  ClockKind clock;
};

struct Measurement {
  std::vector<Sample> samples;  // of this rank
  bool converged = false;
  bool coarse = false;
  std::int64_t operations_total = 0;  // warm-up and verification included
  bool verified = false;
  VerifyResult verify;     // of the check that failed, on the rank where it failed
  std::string stopped_by;  // "count", "interval", "duration", "time"
};

// Raised in shared memory once per completed sample and phase; the parent process reads it.
struct Heartbeat {
  std::atomic<std::uint64_t>* count = nullptr;  // nullptr: nobody watches
  std::atomic<std::uint64_t>* phase = nullptr;  // number of the phase in hand, for the parent's evidence
  void beat() const {
    if (count != nullptr) count->fetch_add(1, std::memory_order_relaxed);
  }
};

// For tests only: called at the start of each named phase, with the number of the sample where there is one.
using PhaseHook = std::function<void(const char* phase, std::int64_t sample)>;

struct SamplerSettings {
  Heartbeat heartbeat;
  PhaseHook hook;  // empty outside of tests
  std::int64_t max_samples = 1'000'000;
  const ClockFacts* clock = nullptr;  // measured once per process
};

// Runs the case's operation (prepared by the caller) under the case's cadence, arrival, clock and stop rule. Collective
// over `group`. No allocation and no I/O in a timed region. Throws what the operation throws, after telling the other
// ranks.
Measurement sample(Operation& operation, Group& group, const CaseSpec& spec, const SamplerSettings& settings);

}  // namespace linkgauge
