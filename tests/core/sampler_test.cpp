// The timed loop: phases, cadences, arrivals, stop rules, verification, failure of a rank.
#include "measure/sampler.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string_view>

#include "base/errors.h"
#include "fake_operation.h"
#include "measure/stop_rule.h"
#include "on_threads.h"
#include "two_nodes.h"

namespace linkgauge {
namespace {

constexpr std::int64_t kLongNs = 20'000'000'000;  // a rule's time that no test reaches

Timing timing_of(StopRuleKind rule, std::int64_t samples) {
  Timing timing;
  timing.stop.kind = rule;
  timing.stop.samples = samples;
  timing.stop.time_ns = kLongNs;
  return timing;
}

SamplerSettings settings_with(double resolution_ns = 1, Timekeeper timekeeper = Timekeeper::kSlowest) {
  SamplerSettings settings;
  settings.host_clock = {20, resolution_ns};
  settings.transport = "fake";
  settings.timekeeper = timekeeper;
  return settings;
}

std::vector<Sample> of_phase(const Measurement& measurement, Phase phase) {
  std::vector<Sample> found;
  for (const Sample& sample : measurement.samples) {
    if (sample.phase == phase) found.push_back(sample);
  }
  return found;
}

// Runs a case on `size` threads; what each rank measured and its operation.
struct Ran {
  std::vector<Measurement> measurements;
  std::vector<std::int64_t> posts;
  std::vector<std::int64_t> fills;
  std::vector<std::int64_t> barriers;
};
Ran run(int size, const Timing& timing, const SamplerSettings& settings, std::int64_t spin_ns,
        const std::function<void(FakeOperation&, int)>& set_up = {}) {
  Ran ran;
  ran.measurements.resize(static_cast<std::size_t>(size));
  ran.posts.resize(static_cast<std::size_t>(size));
  ran.fills.resize(static_cast<std::size_t>(size));
  ran.barriers.resize(static_cast<std::size_t>(size));
  on_threads(size, [&](Group& group) {
    FakeOperation operation(group, spin_ns);
    if (set_up) set_up(operation, group.rank());
    const auto rank = static_cast<std::size_t>(group.rank());
    ran.measurements[rank] = sample(operation, group, timing, settings);
    ran.posts[rank] = operation.posts;
    ran.fills[rank] = static_cast<std::int64_t>(operation.seeds.size());
    ran.barriers[rank] = operation.barriers;
  });
  return ran;
}

TEST(Sampler, CountTakesExactlySoMany) {
  for (const std::int64_t samples : {1, 7, 100}) {
    Timing timing = timing_of(StopRuleKind::kCount, samples);
    timing.warmup = 5;
    const Ran ran = run(3, timing, settings_with(), 500);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const Measurement& measured = ran.measurements[rank];
      const std::vector<Sample> taken = of_phase(measured, Phase::kSample);
      ASSERT_EQ(static_cast<std::int64_t>(taken.size()), samples);
      for (std::size_t i = 0; i < taken.size(); ++i) {
        EXPECT_EQ(taken[i].number, static_cast<std::int32_t>(i));
        EXPECT_EQ(taken[i].iterations, 1);
        EXPECT_GE(taken[i].ns, 500);
        EXPECT_EQ(taken[i].lane, 0);
      }
      EXPECT_EQ(of_phase(measured, Phase::kWarmup).size(), 5U);
      EXPECT_EQ(measured.stopped_by, "count");
      EXPECT_TRUE(measured.converged);
      EXPECT_TRUE(measured.verified);
      EXPECT_FALSE(measured.coarse);
      EXPECT_EQ(measured.operations_total, ran.posts[rank]);
      EXPECT_EQ(measured.operations_total, samples + 5 + 2) << "and a checked one before and after";
      EXPECT_EQ(ran.fills[rank], 2);
    }
  }
}

TEST(Sampler, CommonStartsAreAgreedAndKept) {
  Timing timing = timing_of(StopRuleKind::kCount, 20);
  const Ran ran = run(3, timing, settings_with(), 0);
  for (std::size_t i = 0; i < ran.measurements[0].samples.size(); ++i) {
    const std::int64_t scheduled_ns = ran.measurements[0].samples[i].scheduled_ns;
    EXPECT_GT(scheduled_ns, 0);
    for (const Measurement& measured : ran.measurements) {
      EXPECT_EQ(measured.samples[i].scheduled_ns, scheduled_ns);
      EXPECT_GE(measured.samples[i].start_ns, scheduled_ns);
    }
  }
}

TEST(Sampler, ArrivalsAreSkewedOrFree) {
  Timing timing = timing_of(StopRuleKind::kCount, 10);
  timing.arrival = Arrival::kSkewed;
  timing.skew_ns = 50'000;
  const Ran skewed = run(3, timing, settings_with(), 0);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    for (const Sample& sample : skewed.measurements[rank].samples) {
      EXPECT_GE(sample.start_ns, sample.scheduled_ns + 50'000 * static_cast<std::int64_t>(rank));
    }
  }
  timing.arrival = Arrival::kFree;
  const Ran free = run(2, timing, settings_with(), 0);
  for (const Sample& sample : free.measurements[1].samples) EXPECT_EQ(sample.scheduled_ns, 0);
}

TEST(Sampler, BarrierCadenceUsesTheLibrarysBarrier) {
  Timing timing = timing_of(StopRuleKind::kCount, 10);
  timing.cadence = Cadence::kBarrier;
  timing.warmup = 3;
  const Ran ran = run(2, timing, settings_with(), 0);
  EXPECT_EQ(ran.barriers[0], 13);
  for (const Sample& sample : ran.measurements[0].samples) EXPECT_EQ(sample.scheduled_ns, 0);
}

TEST(Sampler, RanksThatKeepNoTimeStoreNone) {
  const Timing timing = timing_of(StopRuleKind::kInterval, 60);
  const Ran ran = run(2, timing, settings_with(1, Timekeeper::kStarter), 200,
                      [](FakeOperation& operation, int rank) { operation.keeps_time = rank == 0; });
  EXPECT_GE(ran.measurements[0].samples.size(), 30U);
  EXPECT_TRUE(ran.measurements[1].samples.empty());
  EXPECT_EQ(ran.measurements[0].stopped_by, ran.measurements[1].stopped_by);
  EXPECT_EQ(ran.posts[0], ran.posts[1]);
}

TEST(Sampler, StreamingQueuesABatchAndRaisesItToTheClock) {
  Timing timing = timing_of(StopRuleKind::kCount, 12);
  timing.cadence = Cadence::kStreaming;
  timing.batch = 20;
  const Ran fine = run(2, timing, settings_with(1, Timekeeper::kSender), 2'000);
  for (const Sample& sample : of_phase(fine.measurements[0], Phase::kSample)) EXPECT_EQ(sample.iterations, 20);

  // A clock of 10 us: a sample must last more than 1 ms, 500 operations of 2 us.
  const Ran coarse = run(2, timing, settings_with(10'000, Timekeeper::kSender), 2'000);
  for (const Measurement& measured : coarse.measurements) {
    EXPECT_GE(measured.batch, 400);
    EXPECT_FALSE(measured.coarse);
    for (const Sample& sample : of_phase(measured, Phase::kSample)) {
      EXPECT_EQ(sample.iterations, measured.batch);
      EXPECT_GT(sample.ns, 1'000'000);
    }
  }
  EXPECT_EQ(coarse.measurements[0].batch, coarse.measurements[1].batch);
}

TEST(Sampler, ABatchShrinksUntilFiveSamplesFitIntoTheTime) {
  for (const StopRuleKind rule : {StopRuleKind::kInterval, StopRuleKind::kDuration, StopRuleKind::kCount}) {
    Timing timing = timing_of(rule, 1000);
    timing.cadence = Cadence::kStreaming;
    timing.batch = 20;
    timing.stop.time_ns = 400'000'000;
    timing.stop.relative_half_width = 1e-9;
    const Ran ran = run(2, timing, settings_with(), 10'000'000);  // 20 of them take half of the time
    for (const Measurement& measured : ran.measurements) {
      EXPECT_NE(measured.stopped_by, "timeout");
      EXPECT_GE(of_phase(measured, Phase::kSample).size(), 5U);
      EXPECT_LE(measured.batch, 6) << "0.15 of the time";
      EXPECT_GE(measured.batch, 1);
      EXPECT_EQ(measured.batch, ran.measurements[0].batch);
      for (const Sample& sample : of_phase(measured, Phase::kSample)) EXPECT_EQ(sample.iterations, measured.batch);
    }
  }
}

TEST(Sampler, ABatchThatFitsStaysAsItWasAskedFor) {
  Timing timing = timing_of(StopRuleKind::kCount, 1);  // one sample is all that is needed
  timing.cadence = Cadence::kStreaming;
  timing.batch = 20;
  timing.warmup = 1;
  for (const std::int64_t time_ns : {kLongNs, std::int64_t{4'000'000'000}}) {
    timing.stop.time_ns = time_ns;
    const Ran ran = run(2, timing, settings_with(), 1'000'000);
    for (const Measurement& measured : ran.measurements) {
      EXPECT_EQ(measured.batch, 20);
      EXPECT_EQ(measured.stopped_by, "count");
      EXPECT_EQ(of_phase(measured, Phase::kWarmup).size(), 1U);
    }
  }
}

TEST(Sampler, IsolatedStaysAtOneOperationAndIsMarkedCoarse) {
  const Timing timing = timing_of(StopRuleKind::kCount, 8);
  const Ran ran = run(2, timing, settings_with(1'000'000), 1'000);
  for (const Measurement& measured : ran.measurements) {
    EXPECT_TRUE(measured.coarse);
    EXPECT_EQ(measured.batch, 1);
  }
}

TEST(Sampler, IntervalLooksAtItsOwnNumbers) {
  Timing timing = timing_of(StopRuleKind::kInterval, 1000);
  timing.stop.relative_half_width = 1e9;  // wide enough also for samples that a busy machine interrupts
  const Ran easy = run(2, timing, settings_with(), 1'000);
  EXPECT_EQ(of_phase(easy.measurements[0], Phase::kSample).size(), 30U);
  EXPECT_EQ(easy.measurements[1].stopped_by, "interval");
  EXPECT_TRUE(easy.measurements[1].converged);

  timing.stop.relative_half_width = 1e-12;
  timing.stop.samples = 100;
  const Ran hard = run(2, timing, settings_with(), 1'000);
  EXPECT_EQ(of_phase(hard.measurements[0], Phase::kSample).size(), 100U);
  EXPECT_EQ(hard.measurements[0].stopped_by, "count");
  EXPECT_FALSE(hard.measurements[0].converged);
}

TEST(Sampler, TimeBoundsEveryRule) {
  for (const StopRuleKind rule : {StopRuleKind::kCount, StopRuleKind::kInterval}) {
    Timing timing = timing_of(rule, 1'000'000);
    timing.stop.relative_half_width = 1e-12;
    timing.stop.time_ns = 500'000'000;  // also on a busy machine time for some samples
    const Ran ran = run(2, timing, settings_with(), 500'000);
    const auto taken = of_phase(ran.measurements[0], Phase::kSample).size();
    EXPECT_GE(taken, 5U);
    EXPECT_LT(taken, 1'200U);
    EXPECT_EQ(ran.measurements[0].stopped_by, "time");
    EXPECT_FALSE(ran.measurements[0].converged);
    EXPECT_TRUE(ran.measurements[0].verified);
  }
}

TEST(Sampler, DurationSamplesForItsTime) {
  Timing timing = timing_of(StopRuleKind::kDuration, 1);
  timing.stop.time_ns = 300'000'000;
  const std::int64_t before_ns = now_ns();
  const Ran ran = run(2, timing, settings_with(), 100'000);
  EXPECT_GE(now_ns() - before_ns, 300'000'000);
  EXPECT_EQ(ran.measurements[0].stopped_by, "duration");
  EXPECT_TRUE(ran.measurements[0].converged);
  EXPECT_GE(ran.measurements[0].samples.size(), 1U);
}

// So long that what a loaded machine adds to each is little beside it.
TEST(Sampler, FiveSamplesThatEachTakeMostOfTheTimeAreEnough) {
  Timing timing = timing_of(StopRuleKind::kInterval, 100);
  timing.stop.time_ns = 400'000'000;
  timing.warmup = 0;
  const Ran ran = run(2, timing, settings_with(), 280'000'000);
  EXPECT_EQ(of_phase(ran.measurements[0], Phase::kSample).size(), 5U);
  EXPECT_NE(ran.measurements[0].stopped_by, "timeout");
}

TEST(Sampler, FewerThanFiveSamplesInFiveTimesTheTimeIsATimeout) {
  Timing timing = timing_of(StopRuleKind::kCount, 100);
  timing.stop.time_ns = 1'000'000;
  timing.warmup = 0;
  const Ran ran = run(2, timing, settings_with(), 5'000'000);
  const auto taken = of_phase(ran.measurements[0], Phase::kSample).size();
  EXPECT_GE(taken, 1U);
  EXPECT_LT(taken, 5U);
  EXPECT_EQ(ran.measurements[0].stopped_by, "timeout");
}

TEST(Sampler, WrongDataIsCaughtAlsoInTheLastOperationOnly) {
  for (const std::int64_t wrong : {1, 2}) {  // the first check, the final one
    const Timing timing = timing_of(StopRuleKind::kCount, 10);
    const Ran ran = run(3, timing, settings_with(), 0, [wrong](FakeOperation& operation, int rank) {
      if (rank == 1) operation.wrong_verify = wrong;
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const Measurement& measured = ran.measurements[rank];
      EXPECT_FALSE(measured.verified) << "every rank knows";
      EXPECT_EQ(measured.stopped_by, "corrupt");
      EXPECT_EQ(measured.verify.ok, rank != 1);
      EXPECT_EQ(of_phase(measured, Phase::kSample).size(), wrong == 1 ? 0U : 10U);
    }
    EXPECT_EQ(ran.measurements[1].verify.bad_bytes, 3U);
    EXPECT_EQ(ran.measurements[1].verify.where,
              std::string(wrong == 1 ? "the first operation" : "the final operation") + ": in the fake");
  }
}

TEST(Sampler, EachOperationIsCheckedWhereAsked) {
  Timing timing = timing_of(StopRuleKind::kCount, 10);
  timing.verify_each = true;
  timing.cadence = Cadence::kStreaming;  // a batch would overwrite what was lost
  timing.warmup = 2;
  const Ran good = run(2, timing, settings_with(), 0);
  EXPECT_TRUE(good.measurements[0].verified);
  EXPECT_EQ(good.fills[0], 1 + 2 + 10 + 1);
  for (const Sample& sample : good.measurements[0].samples) EXPECT_EQ(sample.iterations, 1);
  const Ran bad = run(2, timing, settings_with(), 0, [](FakeOperation& operation, int rank) {
    if (rank == 0) operation.wrong_verify = 1 + 2 + 4;
  });
  EXPECT_FALSE(bad.measurements[1].verified);
  EXPECT_EQ(of_phase(bad.measurements[1], Phase::kSample).size(), 4U);
}

TEST(Sampler, AsManyOperationsMoreAreCheckedAsAskedEachWithNewData) {
  Timing timing = timing_of(StopRuleKind::kCount, 10);
  timing.checks = 300;
  std::mutex mutex;
  std::vector<std::uint64_t> seeds;
  const Ran good = run(2, timing, settings_with(), 0, [&](FakeOperation& operation, int rank) {
    if (rank == 0)
      operation.on_post = [&](std::int64_t) {
        const std::lock_guard lock(mutex);
        seeds.push_back(operation.seeds.back());
      };
  });
  EXPECT_TRUE(good.measurements[0].verified);
  EXPECT_EQ(good.fills[0], 1 + 300 + 1);
  EXPECT_EQ(good.measurements[0].operations_checked, 1 + 300 + 1);
  EXPECT_EQ(good.measurements[0].operations_total, good.posts[0]) << "the checked ones are counted";
  EXPECT_EQ(of_phase(good.measurements[0], Phase::kSample).size(), 10U) << "and none of them is a sample";
  const std::set<std::uint64_t> checked(seeds.begin(), seeds.begin() + 301);
  EXPECT_EQ(checked.size(), 301U) << "what the one before left cannot pass";
  const Ran bad = run(2, timing, settings_with(), 0, [](FakeOperation& operation, int rank) {
    if (rank == 1) operation.wrong_verify = 1 + 237;
  });
  for (const Measurement& measured : bad.measurements) {
    EXPECT_FALSE(measured.verified);
    EXPECT_EQ(measured.stopped_by, "corrupt");
    EXPECT_EQ(measured.operations_checked, 1 + 237);
    EXPECT_TRUE(of_phase(measured, Phase::kSample).empty());
  }
  EXPECT_EQ(bad.measurements[1].verify.where, "the untimed operation 237: in the fake");
}

TEST(Sampler, ChecksEndWithTheRulesTimeOnAllRanksAlike) {
  Timing timing = timing_of(StopRuleKind::kCount, 1);
  timing.checks = 1'000'000'000;
  timing.stop.time_ns = 20'000'000;
  const Ran ran = run(2, timing, settings_with(), 1'000'000);
  EXPECT_TRUE(ran.measurements[0].verified);
  EXPECT_EQ(ran.measurements[0].operations_checked, ran.measurements[1].operations_checked);
  EXPECT_GE(ran.measurements[0].operations_checked, 1 + 1 + 1);
  EXPECT_LE(ran.measurements[0].operations_checked, 1 + 2 * 20 + 1) << "a round is no longer than twice what was";
}

TEST(Sampler, SeedsDifferFromFillToFillAndAgreeAmongRanks) {
  Timing timing = timing_of(StopRuleKind::kCount, 3);
  timing.verify_each = true;
  timing.seed = 99;
  std::mutex mutex;
  std::map<int, std::vector<std::uint64_t>> seeds;
  on_threads(2, [&](Group& group) {
    FakeOperation operation(group);
    sample(operation, group, timing, settings_with());
    const std::lock_guard lock(mutex);
    seeds[group.rank()] = operation.seeds;
  });
  EXPECT_EQ(seeds[0], seeds[1]);
  EXPECT_EQ(std::set<std::uint64_t>(seeds[0].begin(), seeds[0].end()).size(), seeds[0].size());
}

// Wherever a rank fails, the others hear of it and nobody waits for ever.
class FailingRank : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Posts, FailingRank, testing::Values(1, 2, 7, 20, 46));

TEST_P(FailingRank, IsToldToTheOthers) {
  Timing timing = timing_of(StopRuleKind::kCount, 40);
  timing.warmup = 5;
  std::atomic<int> peers{0};
  std::atomic<int> own{0};
  on_threads(3, [&](Group& group) {
    FakeOperation operation(group);
    if (group.rank() == 2) {
      operation.on_post = [](std::int64_t number) {
        if (number == GetParam()) throw std::runtime_error("the link is down");
      };
    }
    try {
      sample(operation, group, timing, settings_with());
      ADD_FAILURE() << "rank " << group.rank() << " must not return";
    } catch (const PeerError& error) {
      EXPECT_STREQ(error.what(), "rank 2 failed: the link is down");
      ++peers;
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the link is down");
      ++own;
    }
  });
  EXPECT_EQ(peers, 2);
  EXPECT_EQ(own, 1);
}

TEST(Sampler, HooksSeeEveryPhase) {
  Timing timing = timing_of(StopRuleKind::kCount, 3);
  timing.warmup = 2;
  std::vector<std::string> seen;
  SamplerSettings settings = settings_with();
  settings.hook = [&](Moment phase, std::int64_t number, bool after) {
    if (!after) seen.push_back(std::string(to_string(phase)) + std::to_string(number));
  };
  run(1, timing, settings, 0);
  EXPECT_EQ(seen, (std::vector<std::string>{"check-1", "verify-1", "warmup0", "warmup1", "time0", "align0", "record0",
                                            "time1", "align1", "record1", "time2", "align2", "record2", "finished3",
                                            "final_check-1", "verify-1"}));
}

TEST(Sampler, TheHeartbeatRisesWithEverySample) {
  const Timing timing = timing_of(StopRuleKind::kCount, 50);
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> phase{77};
  SamplerSettings settings = settings_with();
  settings.heartbeat = {&count, &phase};
  run(1, timing, settings, 0);
  EXPECT_GE(count, 55U);
  EXPECT_EQ(phase, static_cast<std::uint64_t>(Moment::kIdle));
}

TEST(Sampler, DeviceQueuesAreNeededForEvents) {
  for (const Cadence cadence : {Cadence::kGated, Cadence::kIsolated}) {
    Timing timing = timing_of(StopRuleKind::kCount, 3);
    timing.cadence = cadence;
    timing.clock = ClockKind::kEvent;
    std::atomic<int> refused{0};
    on_threads(2, [&](Group& group) {
      FakeOperation operation(group);
      try {
        sample(operation, group, timing, settings_with());
      } catch (const Unsupported&) {
        ++refused;
      }
    });
    EXPECT_EQ(refused, 2);
  }
}

// Copies on streams of a host device.
class QueuedOperation final : public FakeOperation {
 public:
  QueuedOperation(Group& group, DeviceRuntime& runtime, int streams)
      : FakeOperation(group),
        runtime_(runtime),
        memory_(runtime, 0, MemoryKind::kDevice, static_cast<std::size_t>(streams + 1) * kBytes) {
    for (int i = 0; i < streams; ++i) streams_.emplace_back(runtime, 0);
  }
  void post() override {
    FakeOperation::post();
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      runtime_.copy_async(memory_.at((i + 1) * kBytes), 0, memory_.data(), 0, kBytes, streams_[i].handle());
    }
  }
  void complete() override {
    FakeOperation::complete();
    for (Stream& stream : streams_) stream.synchronize();
  }
  std::vector<DeviceQueue> queues() const override {
    std::vector<DeviceQueue> queues;
    for (const Stream& stream : streams_) queues.push_back({stream.handle(), 0});
    return queues;
  }

 private:
  static constexpr std::size_t kBytes = 65'536;
  DeviceRuntime& runtime_;
  Buffer memory_;
  std::vector<Stream> streams_;
};

TEST(Sampler, EventsAndGatesTimeTheQueues) {
  RuntimeRequest request;
  request.which = "host";
  request.host_devices = 2;
  const auto runtime = open_runtime(request);
  for (const Cadence cadence : {Cadence::kGated, Cadence::kStreaming, Cadence::kIsolated}) {
    Timing timing = timing_of(StopRuleKind::kCount, 10);
    timing.cadence = cadence;
    timing.clock = ClockKind::kEvent;
    timing.batch = 8;
    std::mutex mutex;
    on_threads(2, [&](Group& group) {
      SamplerSettings settings = settings_with(1, Timekeeper::kSender);
      settings.runtime = runtime.get();
      settings.event_clock = measure_event_clock(*runtime, 0);
      EXPECT_GT(settings.event_clock.cost_ns, 0);
      QueuedOperation operation(group, *runtime, 1 + group.rank());
      const Measurement measured = sample(operation, group, timing, settings);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(measured.verified);
      const std::vector<Sample> taken = of_phase(measured, Phase::kSample);
      EXPECT_EQ(taken.size(), 10U);
      for (const Sample& sample : taken) {
        EXPECT_EQ(sample.clock, ClockKind::kEvent);
        EXPECT_GT(sample.ns, 0);
        EXPECT_GT(sample.start_ns, 0);
        EXPECT_EQ(sample.iterations, cadence == Cadence::kIsolated ? 1 : measured.batch);
      }
    });
  }
}

TEST(Sampler, GatedIsTimedByEvents) {
  Timing timing = timing_of(StopRuleKind::kCount, 3);
  timing.cadence = Cadence::kGated;
  EXPECT_THROW(run(1, timing, settings_with(1, Timekeeper::kSender), 0), Unsupported);
}

TEST(StopRule, LooksAt30AndDoubles) {
  StopRuleSpec spec;
  spec.kind = StopRuleKind::kInterval;
  spec.samples = 500;
  const auto rule = make_stop_rule(spec);
  std::vector<std::int64_t> looks;
  for (std::int64_t taken = 0; taken < 500;) looks.push_back(taken = rule->next_look(taken));
  EXPECT_EQ(looks, (std::vector<std::int64_t>{30, 60, 120, 240, 480, 500}));
  spec.samples = 10;
  EXPECT_EQ(make_stop_rule(spec)->next_look(0), 10);
}

TEST(StopRule, NamesWhatIsWrong) {
  StopRuleSpec spec;
  spec.time_ns = 0;
  EXPECT_THROW(make_stop_rule(spec), CallerError);
  spec.time_ns = 1;
  spec.samples = 0;
  EXPECT_THROW(make_stop_rule(spec), CallerError);
  spec.samples = 1;
  spec.relative_half_width = 0;
  EXPECT_THROW(make_stop_rule(spec), CallerError);
}

TEST(Sampler, ClocksOfNodesAreComparedAnewInALongCase) {
  const auto groups = make_thread_groups(1);
  for (const bool is_long : {false, true}) {
    TwoNodes group(*groups[0]);
    FakeOperation operation(group, 100'000);
    Timing timing;
    timing.stop.kind = StopRuleKind::kCount;
    timing.stop.samples = 100;
    SamplerSettings settings;
    if (is_long) settings.clock_age_ns = 1'000'000;
    const Measurement measured = sample(operation, group, timing, settings);
    EXPECT_EQ(measured.stopped_by, "count");
    EXPECT_EQ(group.compared() > 0, is_long);
    EXPECT_EQ(measured.least_certain.has_value(), is_long);
    if (is_long) {
      EXPECT_EQ(measured.least_certain->uncertainty_ns, 1001) << "the worst of all is kept";
    }
    EXPECT_LE(group.compared(), 10) << "between rounds, each twice as long as the one before";
  }
}

// What the file does not take at once, here a pipe with room for 102.4 samples that is now and then full, it gets with
// the next round: no sample is cut, and none shifted.
TEST(Sampler, SamplesAreKeptWholeWhereAFileTakesPartOfThem) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const auto room = static_cast<std::size_t>(fcntl(ends[1], F_SETPIPE_SZ, 4096));
  ASSERT_NE(room % sizeof(Sample), 0U);
  SamplerSettings settings = settings_with();
  settings.kept = ends[1];
  std::vector<std::byte> kept;
  const auto drain = [&](std::size_t most) {
    std::vector<std::byte> bytes(most);
    const ssize_t got = read(ends[0], bytes.data(), bytes.size());
    if (got > 0) kept.insert(kept.end(), bytes.begin(), bytes.begin() + got);
  };
  settings.hook = [&](Moment phase, std::int64_t number, bool after) {
    if (phase == Moment::kTime && after && number % 64 == 0) drain(1000);
  };
  const Ran ran = run(1, timing_of(StopRuleKind::kCount, 1500), settings, 0);
  for (std::size_t before = kept.size() + 1; before != kept.size();) {
    before = kept.size();
    drain(4096);
  }
  close(ends[0]);
  close(ends[1]);
  const std::vector<Sample>& samples = ran.measurements[0].samples;
  EXPECT_GT(kept.size(), 2 * room) << "several rounds";
  ASSERT_LE(kept.size(), samples.size() * sizeof(Sample));
  EXPECT_EQ(std::memcmp(kept.data(), samples.data(), kept.size()), 0);
}

}  // namespace
}  // namespace linkgauge
