// What ranks try out on the links that they share: one after the other.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/errors.h"
#include "case_maker.h"
#include "group/agreement.h"
#include "planted_runtime.h"
#include "transport/memory/direct_copies.h"
#include "with_sessions.h"

namespace linkgauge {
namespace {

constexpr auto kTrial = std::chrono::milliseconds(5);

// A mechanism whose legs are chosen by trials, and are slower where another rank's trial is under way.
class TriedLeg final : public CopyLeg {
 public:
  TriedLeg(const RankContext& context, int device, std::atomic<int>& trials, std::atomic<int>& disturbed)
      : CopyLeg(context, device) {
    if (trials.fetch_add(1) > 0) ++disturbed;
    std::this_thread::sleep_for(kTrial);
    trials.fetch_sub(1);
  }
  void copy(void*, const void*, std::size_t) override {}
};

TEST(TuningTurns, NoRankChoosesWhileAnotherTriesOut) {
  const auto runtime = host_devices(4);
  const CaseSpec spec = case_of("kernel", Pattern::kRingShift, 4, 64);
  std::atomic<int> trials{0};
  std::atomic<int> disturbed{0};
  std::atomic<int> legs{0};
  on_threads(4, [&](Group& group) {
    const RankContext context = context_of(*runtime, group, spec);
    const Buffer source(*runtime, context.device(), MemoryKind::kDevice, 64);
    const Buffer target(*runtime, context.device(), MemoryKind::kDevice, 64);
    const int me = group.rank();
    const Flows flows{{me, (me + 1) % 4, &source, nullptr, 64}, {(me + 3) % 4, me, nullptr, &target, 64}};
    const auto make_leg = [&](int device, const PeerBuffer&, const PeerBuffer&, std::size_t) {
      ++legs;
      return std::make_unique<TriedLeg>(context, device, trials, disturbed);
    };
    const auto channels = connect_one_sided(context, spec, flows, {true, true, true, make_leg});
    group.barrier({});
  });
  EXPECT_EQ(legs.load(), 4);
  EXPECT_EQ(disturbed.load(), 0);
}

TEST(TuningTurns, WhatOneRankCannotAllHearOf) {
  for (const bool disturbed : {true, false}) {
    on_threads(3, [&](Group& group) {
      try {
        by_turns(group, disturbed, [&] {
          if (group.rank() == 1) throw Unsupported("no kernel here");
        });
        ADD_FAILURE();
      } catch (const Unsupported& error) {
        EXPECT_STREQ(error.what(), "rank 1: no kernel here");
      }
      group.barrier({});
    });
  }
}

// --- a case in two groups of ranks, on the same links

CaseSpec in_two_groups(const std::string& transport, Pattern pattern, std::int64_t size_bytes) {
  CaseSpec spec = case_of(transport, pattern, 4, size_bytes);
  spec.places.groups = 2;
  spec.timing.stop.kind = StopRuleKind::kCount;
  spec.timing.stop.samples = 6;
  spec.timing.stop.time_ns = 20'000'000'000;
  return spec;
}

CaseSpec allreduce_in_two_groups(const std::string& algorithm, const std::string& variant) {
  CaseSpec spec = in_two_groups("kernel", Pattern::kAllreduce, 4096);
  spec.mechanism.algorithm = algorithm;
  spec.mechanism.variant = variant;
  return spec;
}

bool preparing() { return moment_here() == static_cast<std::uint64_t>(Moment::kPrepare); }

// Who tried something out, in the order of trials: each who follows another once.
class Trials {
 public:
  void add(int who) {
    {
      const std::lock_guard lock(mutex_);
      if (!order_.empty() && order_.back() == who) return;
      order_.push_back(who);
    }
    std::this_thread::sleep_for(kTrial);  // another's would come between, of the many of a turn
  }
  std::vector<int> order() {
    const std::lock_guard lock(mutex_);
    return std::exchange(order_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<int> order_;
};

TEST(PartsTakeTurns, ACopyIsTriedOutByOneRankOfAllPartsAtATime) {
  Trials trials;
  const auto runtime = std::make_shared<PlantedRuntime>(4, [&](int device, const LaunchShape&) {
    if (preparing()) trials.add(device);
    return 100'000;
  });
  with_sessions(runtime, 4, [&](Session& session, Group&) {
    const auto result = session.measure(in_two_groups("kernel", Pattern::kRingShift, 1000));
    ASSERT_TRUE(result.has_value());
    EXPECT_TRUE(result->measurement.verified);
    EXPECT_EQ(result->chosen.at("kernel"), kKernelCopy);
    EXPECT_EQ(result->chosen.at("grid"), "1 x 512");
  });
  EXPECT_EQ(trials.order(), (std::vector<int>{0, 1, 2, 3}));
}

TEST(PartsTakeTurns, AnAllreduceIsTriedOutByOnePartAtATime) {
  Trials trials;
  const auto runtime = std::make_shared<PlantedRuntime>(4, [&](int device, const LaunchShape&) {
    if (preparing()) trials.add(device / 2);
    return 100'000;
  });
  for (const bool pushed : {false, true}) {
    if (!kThorough && pushed) continue;  // three seconds each
    const CaseSpec spec =
        pushed ? allreduce_in_two_groups("one_shot", "push") : allreduce_in_two_groups("two_shot", "device_barrier");
    with_sessions(runtime, 4, [&](Session& session, Group&) {
      const auto result = session.measure(spec);
      ASSERT_TRUE(result.has_value());
      EXPECT_TRUE(result->measurement.verified);
      EXPECT_NE(result->chosen.at("grid").find(" x "), std::string::npos);
    });
    EXPECT_EQ(trials.order(), (std::vector<int>{0, 1}));
  }
}

TEST(PartsTakeTurns, WhereNothingIsTriedNothingIsSaidToBeChosen) {
  with_sessions(host_devices(4), 4, [&](Session& session, Group&) {
    const auto result = session.measure(allreduce_in_two_groups("one_shot", "push"));
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->chosen.count("grid"), 0U);
  });
}

// In the middle of its trials a rank of either part fails: those that wait for their turn, or had it, hear of it.
TEST(PartsTakeTurns, ARankThatFailsWhileItTriesKeepsNoOtherPartWaiting) {
  for (const int failing : {0, 3}) {
    std::atomic<bool> fails{true};
    const auto runtime = std::make_shared<PlantedRuntime>(4, [&](int device, const LaunchShape&) {
      if (fails && device == failing && preparing()) throw RuntimeCallError("launch", "planted", 1, device, "");
      return 100'000;
    });
    for (const bool copies : {true, false}) {
      if (kFewRanks && copies != (failing == 0)) continue;  // trials take up to a second each
      const CaseSpec spec = copies ? in_two_groups("kernel", Pattern::kRingShift, 1000)
                                   : allreduce_in_two_groups("two_shot", "device_barrier");
      fails = true;
      with_sessions(runtime, 4, [&](Session& session, Group& group) {
        if (group.rank() == failing) {
          EXPECT_THROW(session.measure(spec), RuntimeCallError);
        } else {
          EXPECT_THROW(session.measure(spec), PeerError);
        }
        group.barrier({});
        fails = false;
        group.barrier({});
        const auto result = session.measure(spec);
        ASSERT_TRUE(result.has_value());
        EXPECT_TRUE(result->measurement.verified);
      });
    }
  }
}

}  // namespace
}  // namespace linkgauge
