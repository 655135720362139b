// What ranks try out on the links that they share: one after the other.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "case_maker.h"
#include "errors.h"
#include "group/agreement.h"
#include "transport/one_sided.h"

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
    const std::vector<Flow> flows{{me, (me + 1) % 4, &source, nullptr, 64}, {(me + 3) % 4, me, nullptr, &target, 64}};
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

}  // namespace
}  // namespace linkgauge
