// One sample of a case: how its operations are started together, and between which readings of which clock.
#pragma once

#include <cstdint>
#include <memory>

#include "base/not_copied.h"
#include "measure/sampler.h"

namespace linkgauge {

// What a section is made from; outlives it. Lead and batch may be changed between samples.
struct SectionContext {
  Operation& operation;
  Group& group;
  const Timing& timing;
  const std::string& transport;
  Progress progress;
  DeviceRuntime* runtime = nullptr;
  int batch = 1;             // operations of one sample
  std::int64_t lead_ns = 0;  // how far ahead the common start is set
  std::int64_t late = 0;     // samples whose common start had passed when this rank was ready
};

class TimedSection : NotCopied {
 public:
  virtual ~TimedSection() = default;
  // Collective. Fills scheduled_ns, start_ns, ns and iterations. Between its two clock readings nothing is allocated
  // and nothing but post and complete is called.
  virtual void take(Sample& sample) = 0;
};

// Throws Unsupported, on every rank, where the operation's work cannot be held in queues or seen by events.
std::unique_ptr<TimedSection> make_timed_section(SectionContext& context);

}  // namespace linkgauge
