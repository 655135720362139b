// How long one rank's steps of an application take, by their kind: of each iteration, and of the last that was checked
// in the order of its steps. All but the report is inline: it lies between a program's steps, within what is timed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/now.h"
#include "transport/operation.h"

namespace linkgauge {

// The last is the part of `message` that is posting, not waiting.
inline constexpr std::array<const char*, 9> kStepKinds = {"compute",       "host_to_device", "device_to_host",
                                                          "within_device", "message",        "collective",
                                                          "barrier",       "sync",           "posting"};
enum SpentOn : std::uint8_t {
  kOnCompute,
  kOnCopies,
  kOnMessages = 4,
  kOnCollectives,
  kOnBarriers,
  kOnSyncs,
  kOnPosting
};

class StepTimes {
 public:
  void allocate() {
    spent_.resize(kKeptIterations);
    spans_.reserve(kMostSpans);
  }
  // Of the next iteration, which is checked and so none that is timed.
  void keep_spans() {
    spans_.clear();
    keeps_spans_ = true;
  }
  void begin_iteration() {
    now_ = {};
    last_ns_ = now_ns();
  }
  std::int64_t last_ns() const { return last_ns_; }  // when the step before ended
  void spend(std::size_t kind) {
    const std::int64_t now = now_ns();
    now_[kind] += now - last_ns_;
    if (keeps_spans_) keep_span(kStepKinds[kind], now);
    last_ns_ = now;
  }
  void spend_on_posting() {
    const std::int64_t before = last_ns_;
    spend(kOnMessages);
    now_[kOnPosting] += last_ns_ - before;
  }
  void end_iteration() {
    spent_[iterations_++ % kKeptIterations] = now_;
    keeps_spans_ = false;
  }
  // As Operation::step_report.
  StepReport report(std::size_t iterations) const;

 private:
  static constexpr std::size_t kKeptIterations = 1 << 14;
  static constexpr std::size_t kMostSpans = 256;

  void keep_span(const char* kind, std::int64_t now) {
    if (!spans_.empty() && spans_.back().kind == kind && spans_.back().end_ns == last_ns_) {
      spans_.back().end_ns = now;
    } else if (spans_.size() < kMostSpans) {
      spans_.push_back({kind, last_ns_, now});
    }
  }

  using Spent = std::array<std::int64_t, kStepKinds.size()>;
  std::size_t iterations_ = 0;
  std::vector<Spent> spent_;  // by iteration, the last so many
  Spent now_{};
  std::int64_t last_ns_ = 0;
  std::vector<StepSpan> spans_;
  bool keeps_spans_ = false;
};

}  // namespace linkgauge
