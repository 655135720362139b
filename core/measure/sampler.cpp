// Long: the phases of a measurement are one class, since each decides by what the others found.
#include "measure/sampler.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/patterns.h"
#include "kernels/values.h"
#include "measure/statistics.h"
#include "measure/stop_rule.h"
#include "measure/timed_section.h"

namespace linkgauge {
namespace {

constexpr double kClockShare = 0.01;  // of a sample that the clock's resolution may be
constexpr int kLargestBatch = 1 << 20;
constexpr int kMostHeldCommands = 512;  // CUDA queues take 1024; all of a gated batch must fit, and events besides
constexpr std::int64_t kFirstLeadNs = 5'000;
constexpr std::int64_t kCrowdedLeadNs = 50'000;  // more ranks than cores: they need the core in turn
constexpr std::int64_t kLongestLeadNs = 2'000'000;
constexpr double kLateShare = 0.2;                   // of a round's samples, above which the lead is doubled
constexpr double kWarmupShare = 0.25;                // of the rule's time
constexpr std::int64_t kPlacedRoundNs = 10'000'000;  // drawing costs a thousandth of it
constexpr std::int64_t kLeastBeside = 5;    // samples of a round beside loads, where each is not as long as that
constexpr std::int64_t kLeastByTurns = 30;  // samples beside loads: six windows of three and more, from a first of one
constexpr std::int64_t kWakingShare = 8;    // of a round, untimed before it, beside loads and alone
constexpr std::int64_t kBesideShare =
    5;  // of the samples so far, that such a round may be: many rounds make an interval
constexpr std::int64_t kFirstClockAgeNs = 1'000'000'000;
constexpr std::int64_t kBesideRoundNs = 50'000'000;  // loads take some 10 ms to rest and as long to be back

// A different seed for each data pattern of a case (splitmix64).
std::uint64_t seed_of(std::uint64_t seed, std::uint64_t number) {
  return values::mix(seed + 0x9e3779b97f4a7c15U * (number + 1));
}

// What the ranks know together between rounds: from it each reckons the same next step.
struct RoundReport {
  std::int64_t elapsed_ns = 0;           // since the first warm-up, of the rank that began first
  std::int64_t round_ns = 0;             // of the last round, of the slowest rank
  std::int64_t shortest_ns = INT64_MAX;  // sample of the last round, by any timekeeper
  std::int64_t late = 0;                 // samples of the last round, of the rank that was late most often
};

// The phases of a measurement on one rank. Every decision is made by all ranks from the same data.
class Sampler {
 public:
  Sampler(Operation& operation, Group& group, const Timing& timing, const SamplerSettings& settings)
      : operation_(operation),
        group_(group),
        timing_(timing),
        settings_(settings),
        progress_(operation.progress()),
        rule_(make_stop_rule(timing.stop)),
        context_{operation,           group, timing, settings.transport, progress_, settings.runtime, first_batch(),
                 first_lead_ns(group)},
        section_(make_timed_section(context_)) {
    const ClockFacts& clock = timing.clock == ClockKind::kEvent ? settings.event_clock : settings.host_clock;
    resolution_ns_ = std::max(clock.resolution_ns, 1.0);
  }

  Measurement measure() {
    if (check(Moment::kCheck, "the first operation") && check_more()) {
      begin_ns_ = now_ns();
      if (warm_up() && take_samples()) check(Moment::kFinalCheck, "the final operation");
    }
    measurement_.coarse = is_coarse();
    measurement_.batch = context_.batch;
    settings_.heartbeat.enter(Moment::kIdle);
    return std::move(measurement_);
  }

 private:
  bool batched() const { return timing_.cadence == Cadence::kStreaming || timing_.cadence == Cadence::kGated; }

  // With each operation checked, a sample is one operation: a lost copy is overwritten by the next of a batch.
  int first_batch() const {
    return batched() && !timing_.verify_each ? std::clamp(timing_.batch, 1, largest_batch()) : 1;
  }
  int largest_batch() const {
    if (timing_.cadence != Cadence::kGated) return kLargestBatch;
    return std::max(1, kMostHeldCommands / std::max(operation_.commands_per_post(), 1));
  }

  static std::int64_t first_lead_ns(const Group& group) {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    return group.size() > cores ? kCrowdedLeadNs : kFirstLeadNs;
  }

  void hook(Moment phase, std::int64_t sample, bool after) const {
    if (settings_.hook) settings_.hook(phase, sample, after);
  }

  // New data, one operation, every byte looked at. False, on every rank, where any found a wrong one.
  bool check(Moment moment, const char* which, std::int64_t number = -1) {
    settings_.heartbeat.enter(moment);
    fill();
    operation_.put_back();
    hook(moment, number, false);
    const std::int64_t start_ns = now_ns();
    operation_.post();
    operation_.complete();
    checked_ns_ = now_ns() - start_ns;
    ++measurement_.operations_total;
    hook(moment, number, true);
    return verify(which, number);
  }

  // As many more as are asked for, before any is timed: what follows them is warmed up as ever. They take as long as
  // the rule's time at most, so that a case's own budget holds; the ranks look at the clock together, after rounds.
  bool check_more() {
    const std::int64_t start_ns = now_ns();
    std::int64_t round = 1;
    for (std::int64_t done = 0; done < timing_.checks;) {
      for (const std::int64_t end = std::min(done + round, timing_.checks); done < end;) {
        ++done;
        if (!check(Moment::kCheck, "the untimed operation", done)) return false;
      }
      const std::int64_t elapsed_ns = group_.largest_of(now_ns() - start_ns, progress_);
      const std::int64_t left_ns = timing_.stop.time_ns - elapsed_ns;
      if (left_ns <= 0) break;
      round = std::clamp<std::int64_t>(left_ns / std::max<std::int64_t>(elapsed_ns / done, 1), 1, 2 * round);
    }
    return true;
  }

  void fill() {
    operation_.fill(seed_of(timing_.seed, ++fills_));
    group_.barrier(progress_);  // no rank sends into a buffer that is still being poisoned
  }

  bool verify(std::string_view which, std::int64_t number = -1) {
    group_.barrier(progress_);
    hook(Moment::kVerify, -1, false);
    const VerifyResult mine = operation_.verify(seed_of(timing_.seed, fills_));
    measurement_.verified = group_.agree(mine.ok, progress_);
    ++measurement_.operations_checked;
    settings_.heartbeat.beat();
    if (measurement_.verified) return true;
    measurement_.stopped_by = "corrupt";
    if (!mine.ok) {
      measurement_.verify = mine;
      std::string where(which);
      if (number >= 0) where.append(" ").append(std::to_string(number));
      if (!mine.where.empty()) where.append(": ").append(mine.where);
      measurement_.verify.where = where;
    }
    return false;
  }

  // At least timing.warmup operations, unless they would take too much of the case's time; batches grow here until the
  // clock is fine enough, and shrink until enough samples fit.
  bool warm_up() {
    settings_.heartbeat.enter(Moment::kWarmup);
    std::int64_t done = 0;
    const int asked = context_.batch;
    bool probing = may_not_fit();
    if (probing) context_.batch = 1;
    for (std::int64_t round = 1;; round *= 2) {
      const std::int64_t wanted =
          (std::max<std::int64_t>(timing_.warmup, 1) - done + context_.batch - 1) / context_.batch;
      const std::int64_t samples = std::clamp<std::int64_t>(wanted, 1, round);
      const int batch = context_.batch;
      if (!run_round(Phase::kWarmup, samples)) return false;
      done += samples * batch;
      const RoundReport report = agreed_report();
      plan_lead(report, samples);
      if (probing) {
        probing = false;
        context_.batch = fitting_batch(report, samples, asked);
        if (context_.batch > 1) continue;
      }
      const bool fine = !plan_batch(report);
      const auto most_ns = static_cast<std::int64_t>(kWarmupShare * static_cast<double>(timing_.stop.time_ns));
      if (fine && (done >= timing_.warmup || report.elapsed_ns > most_ns)) return true;
    }
  }

  // Rounds of samples between which the ranks meet: the first is one sample, each later one at most twice as long, and
  // where blocks are placed anew for each as long as one placement shall last.
  bool take_samples() {
    const std::int64_t most = std::max<std::int64_t>(settings_.max_samples, 1);
    std::int64_t round = 1;
    std::int64_t longest_sample_ns = 0;
    int turn = 0;
    while (true) {
      const std::int64_t look_at = std::min(rule_->next_look(taken_), most);
      const std::int64_t samples = std::min(round, look_at - taken_);
      settings_.heartbeat.enter(Moment::kTime);
      if (settings_.let_loads ? !run_by_turns(samples, turn++) : !run_round(Phase::kSample, samples)) return false;
      keep();
      const RoundReport report = agreed_report();
      plan_lead(report, samples);
      const std::int64_t elapsed_ns = report.elapsed_ns;
      compare_old_clocks(elapsed_ns);
      const std::int64_t sample_ns = std::max<std::int64_t>(report.round_ns / samples, 1);
      longest_sample_ns = std::max(longest_sample_ns, sample_ns);
      if (finished(look_at, most, elapsed_ns, longest_sample_ns)) return true;
      const std::int64_t left_ns = std::max<std::int64_t>(timing_.stop.time_ns - elapsed_ns, 0);
      std::int64_t most_ns = settings_.placement != nullptr ? std::min(left_ns, kPlacedRoundNs) : left_ns;
      std::int64_t longest = 2 * samples;
      if (settings_.let_loads) {
        most_ns = std::min(most_ns, kBesideRoundNs);
        longest = std::min(longest, std::max(kLeastBeside, taken_ / kBesideShare));
      }
      round = std::clamp<std::int64_t>(most_ns / sample_ns, 1, longest);
    }
  }

  // Nodes' clocks drift, by microseconds a second where nothing disciplines them: a long case is not aligned by what
  // was so before it. Between rounds, on all ranks after the same one; at first after a second, then after twice as
  // long each time, so that how fast they drift is soon known.
  void compare_old_clocks(std::int64_t elapsed_ns) {
    if (group_.node_count() == 1) return;
    const std::int64_t age_ns = std::min(settings_.clock_age_ns, std::max(compared_ns_, kFirstClockAgeNs));
    if (elapsed_ns - compared_ns_ < age_ns) return;
    const ClockOffset clock = group_.compare_clocks(progress_);
    compared_ns_ = elapsed_ns;
    std::optional<ClockOffset>& worst = measurement_.least_certain;
    if (worst && worst->uncertainty_ns >= clock.uncertainty_ns) return;
    worst = clock;
    measurement_.least_certain_ns = now_ns();
  }

  bool finished(std::int64_t look_at, std::int64_t most, std::int64_t elapsed_ns, std::int64_t longest_sample_ns) {
    const bool duration = timing_.stop.kind == StopRuleKind::kDuration;
    const bool time_up = elapsed_ns >= timing_.stop.time_ns;
    if (taken_ >= look_at || (time_up && taken_ >= kFewSamples)) {
      settings_.heartbeat.enter(Moment::kLook);
      hook(Moment::kLook, taken_, false);
      if (!duration) gather_series();
      const Verdict verdict = rule_->look(series_, elapsed_ns, resolution_ns_ / context_.batch);
      if (verdict.finished && !(few_turns() && !time_up)) {
        return stop(std::string(verdict.stopped_by), verdict.converged);
      }
      if (time_up) return stop("time", false);
      if (taken_ >= most) return stop("count", false);
    }
    // A sample may take as long as the rule's time: what lies between samples is the one more.
    if (elapsed_ns > kFewSamples * timing_.stop.time_ns + longest_sample_ns) return stop("timeout", false);
    return false;
  }

  // A median may be known before it is known what the loads cost: that takes some turns.
  bool few_turns() const {
    return settings_.let_loads && timing_.stop.kind == StopRuleKind::kInterval &&
           taken_ < std::min(kLeastByTurns, timing_.stop.samples);
  }

  bool stop(const std::string& by, bool converged) {
    measurement_.stopped_by = by;
    measurement_.converged = converged;
    return true;
  }

  // Before a round, not in it; doubled, since rounds of one length would move all samples each time. Written once: a
  // page that is touched first between two samples keeps the other ranks waiting in the next.
  void make_room(std::size_t count) {
    std::vector<Sample>& samples = measurement_.samples;
    if (samples.capacity() >= count) return;
    const std::size_t known = samples.size();
    samples.resize(std::max(count, 2 * samples.capacity()));
    samples.resize(known);
  }

  // All ranks are at rest here, and leave together.
  void place_blocks_anew() {
    if (settings_.placement == nullptr) return;
    settings_.placement->draw();
    group_.barrier(progress_);
  }

  bool run_round(Phase phase, std::int64_t samples) {
    place_blocks_anew();
    std::int64_t& numbers = phase == Phase::kWarmup ? warmups_ : phase == Phase::kAlone ? alone_ : taken_;
    make_room(measurement_.samples.size() + static_cast<std::size_t>(samples));
    context_.late = 0;
    shortest_ns_ = INT64_MAX;
    const std::int64_t start_ns = now_ns();
    for (std::int64_t i = 0; i < samples; ++i) {
      if (!take_one(phase, numbers++)) return false;
    }
    round_ns_ = now_ns() - start_ns;
    return true;
  }

  // A round beside the loads and one alone, the one first by turns: of what drifts as much is in both.
  bool run_by_turns(std::int64_t samples, int turn) {
    std::int64_t beside_ns = 0;
    for (const bool first : {true, false}) {
      const bool beside = first == (turn % 2 == 0);
      settings_.let_loads(beside);
      // The ranks slept until the loads went on or, for longer, until they rested: that the first operations find a
      // core that has idled would be taken for what the loads do.
      if (samples > 1 && !run_round(Phase::kWarmup, 1 + samples / kWakingShare)) return false;
      if (!run_round(beside ? Phase::kSample : Phase::kAlone, samples)) return false;
      if (beside) beside_ns = round_ns_;
    }
    round_ns_ = beside_ns;
    return true;
  }

  bool take_one(Phase phase, std::int64_t number) {
    const Moment moment = phase == Phase::kWarmup ? Moment::kWarmup : Moment::kTime;
    if (timing_.verify_each) fill();
    operation_.put_back();
    hook(moment, number, false);
    if (phase != Phase::kWarmup) hook(Moment::kAlign, number, false);
    Sample sample;
    section_->take(sample);
    hook(moment, number, true);
    record(sample, phase, number);
    return !timing_.verify_each || verify(to_string(moment));
  }

  void record(Sample& sample, Phase phase, std::int64_t number) {
    if (phase != Phase::kWarmup) hook(Moment::kRecord, number, false);
    measurement_.operations_total += sample.iterations;
    settings_.heartbeat.beat();
    if (operation_.lane() < 0) return;
    const int lane = settings_.first_lane + operation_.lane();
    sample.number = static_cast<std::int32_t>(number);
    sample.lane = static_cast<std::int16_t>(lane);
    sample.phase = phase;
    sample.clock = timing_.clock;
    shortest_ns_ = std::min(shortest_ns_, sample.ns);
    measurement_.samples.push_back(sample);
  }

  // The samples since the last call, where a load's end may take this process along: some microseconds, between rounds.
  // The file is the beginning of all samples' bytes: what a full disk has not taken is written first the next time.
  void keep() {
    if (settings_.kept < 0) return;
    const auto bytes = std::as_bytes(std::span(measurement_.samples));
    while (kept_bytes_ < bytes.size()) {
      const ssize_t written = ::write(settings_.kept, bytes.data() + kept_bytes_, bytes.size() - kept_bytes_);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;  // it costs what only a failure would need
      kept_bytes_ += static_cast<std::size_t>(written);
    }
  }

  RoundReport agreed_report() {
    const std::int64_t shortest_ns = std::max<std::int64_t>(shortest_ns_, 1);
    std::array<std::int64_t, 4> told = {now_ns() - begin_ns_, round_ns_, -shortest_ns, context_.late};
    group_.largest(told, progress_);
    return {told[0], told[1], -told[2], told[3]};
  }

  // Doubles the lead where ranks were often not ready at the common start.
  void plan_lead(const RoundReport& report, std::int64_t samples) {
    if (static_cast<double>(report.late) <= kLateShare * static_cast<double>(samples)) return;
    context_.lead_ns = std::min(2 * context_.lead_ns, kLongestLeadNs);
  }

  // How long a sample may take so that, after the warm-up, as many fit into the rule's time as a measurement needs.
  double fitting_ns() const {
    const bool count = timing_.stop.kind == StopRuleKind::kCount;
    const std::int64_t needed = count ? std::min(timing_.stop.samples, kFewSamples) : kFewSamples;
    return (1 - kWarmupShare) * static_cast<double>(timing_.stop.time_ns) / static_cast<double>(needed);
  }

  // Whether a batch may take longer, by the operation that was checked: the first, which is seldom a quick one.
  bool may_not_fit() {
    if (context_.batch == 1) return false;
    const std::int64_t longest_ns = group_.largest_of(checked_ns_, progress_);
    return static_cast<double>(longest_ns) * context_.batch > fitting_ns();
  }

  // The largest batch up to `asked` of which enough samples fit, by a round of so many samples of one operation.
  int fitting_batch(const RoundReport& report, std::int64_t samples, int asked) const {
    const std::int64_t longest_ns = std::max<std::int64_t>(report.round_ns / samples, 1);
    return static_cast<int>(std::clamp<double>(fitting_ns() / static_cast<double>(longest_ns), 1, asked));
  }

  // Raises the batch until the clock's resolution is below 1 % of a sample. True where it did.
  bool plan_batch(const RoundReport& report) {
    if (!batched() || timing_.verify_each) return false;
    const std::int64_t shortest_ns = report.shortest_ns;
    const double wanted_ns = resolution_ns_ / kClockShare;
    if (shortest_ns == INT64_MAX || static_cast<double>(shortest_ns) > wanted_ns) return false;
    const double factor = std::clamp(1.2 * wanted_ns / static_cast<double>(shortest_ns), 2.0, 100.0);
    const int raised = static_cast<int>(std::min<double>(largest_batch(), std::ceil(factor * context_.batch)));
    return std::exchange(context_.batch, raised) != raised;
  }

  // The case's times so far, from every timekeeper's samples since the last look; the same on every rank.
  void gather_series() {
    const bool from_schedule =
        settings_.timekeeper == Timekeeper::kSlowest && timing_.clock == ClockKind::kHost && group_.node_count() == 1;
    const std::size_t known = series_.size();
    // A time is not negative: its bits, as a number, are in the order of times.
    std::vector<std::int64_t> times;
    for (; gathered_ < measurement_.samples.size(); ++gathered_) {
      const Sample& sample = measurement_.samples[gathered_];
      if (sample.phase != Phase::kSample) continue;
      const bool scheduled = from_schedule && sample.scheduled_ns != 0;
      const std::int64_t ns = scheduled ? sample.start_ns + sample.ns - sample.scheduled_ns : sample.ns;
      const double each_ns =
          static_cast<double>(std::max<std::int64_t>(ns, 0)) / static_cast<double>(sample.iterations);
      times.push_back(std::bit_cast<std::int64_t>(each_ns));
    }
    times.resize(static_cast<std::size_t>(taken_) - known);  // zeros on ranks that keep no time
    group_.largest(times, progress_);
    for (const std::int64_t bits : times) series_.push_back(std::bit_cast<double>(bits));
  }

  // Whether the clock is too coarse for this case's samples, by any timekeeper.
  bool is_coarse() {
    std::vector<double> times;
    for (const Sample& sample : measurement_.samples) {
      if (sample.phase == Phase::kSample) times.push_back(static_cast<double>(sample.ns));
    }
    const bool fine = times.empty() || resolution_ns_ < kClockShare * median(times);
    return !group_.agree(fine, progress_);
  }

  Operation& operation_;
  Group& group_;
  const Timing& timing_;
  const SamplerSettings& settings_;
  Progress progress_;
  std::unique_ptr<StopRule> rule_;
  SectionContext context_;
  std::unique_ptr<TimedSection> section_;
  double resolution_ns_ = 1;

  Measurement measurement_;
  std::vector<double> series_;
  std::size_t gathered_ = 0;
  std::size_t kept_bytes_ = 0;  // of the samples, in the file that keeps them
  std::int64_t taken_ = 0;
  std::int64_t warmups_ = 0;
  std::int64_t alone_ = 0;
  std::uint64_t fills_ = 0;
  std::int64_t begin_ns_ = 0;
  std::int64_t compared_ns_ = 0;  // when the nodes' clocks were, since begin_ns_
  std::int64_t checked_ns_ = 0;   // of the operation that was checked last
  std::int64_t round_ns_ = 0;
  std::int64_t shortest_ns_ = INT64_MAX;
};

}  // namespace

Measurement sample(Operation& operation, Group& group, const Timing& timing, const SamplerSettings& settings) {
  try {
    return Sampler(operation, group, timing, settings).measure();
  } catch (const std::exception& error) {
    group.begin_abort(error);
    throw;
  } catch (...) {
    group.begin_abort("an error without a name");
    throw;
  }
}

}  // namespace linkgauge
