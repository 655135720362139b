// Cases from end to end on host devices, with ranks that sit out, refusals, and faults.
#include "run/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <numeric>

#include "base/errors.h"
#include "case_maker.h"
#include "fake_mpi.h"
#include "planted_faults.h"
#include "refused.h"
#include "traffic/lanes.h"
#include "with_sessions.h"

namespace linkgauge {
namespace {

CaseSpec copy_case(std::vector<int> ranks, Pattern pattern = Pattern::kUnidirectional) {
  CaseSpec spec;
  spec.mechanism.transport = "copy_engine";
  spec.traffic.pattern = pattern;
  spec.traffic.size_bytes = 65'536;
  spec.places.rank_list = ranks;
  spec.places.devices = std::move(ranks);
  spec.timing.stop.kind = StopRuleKind::kCount;
  spec.timing.stop.samples = 6;
  spec.timing.stop.time_ns = 20'000'000'000;
  return spec;
}

void with_sessions(int size, const std::function<void(Session&, Group&)>& body) {
  with_sessions(host_devices(size), size, body);
}

void expect_good(const std::optional<CaseResult>& result) {
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->measurement.verified);
  EXPECT_EQ(result->measurement.stopped_by, "count");
}

TEST(Session, RanksOutsideOfACaseSitOut) {
  with_sessions(3, [](Session& session, Group& group) {
    for (const std::vector<int>& pair : {std::vector<int>{0, 1}, {0, 2}, {1, 2}}) {
      const auto result = session.measure(copy_case(pair));
      if (std::find(pair.begin(), pair.end(), group.rank()) == pair.end()) {
        EXPECT_FALSE(result.has_value());
      } else {
        expect_good(result);
        EXPECT_EQ(result->lanes, std::vector<std::string>{"0->1"});
      }
    }
    expect_good(session.measure(copy_case({0, 1, 2}, Pattern::kAlltoall)));
  });
}

// However many groups it has: MPI libraries have some thousands of communicators.
TEST(Session, ACaseTakesOneCommunicatorOfMpi) {
  std::vector<std::shared_ptr<MpiLibrary>> libraries;
  for (int rank = 0; rank < 4; ++rank) libraries.push_back(std::make_shared<FakeMpi>(4));
  with_sessions(
      host_devices(4), 4,
      [&](Session& session, Group& group) {
        const auto& mpi = static_cast<const FakeMpi&>(*libraries[static_cast<std::size_t>(group.rank())]);
        CaseSpec spec = copy_case({0, 1, 2, 3}, Pattern::kAllgather);
        spec.places.groups = 2;
        expect_good(session.measure(spec));
        EXPECT_EQ(mpi.splits(), 1);
        expect_good(session.measure(spec));
        EXPECT_EQ(mpi.splits(), 1);
        spec.places.groups = 1;
        expect_good(session.measure(spec));  // on the world
        EXPECT_EQ(mpi.splits(), 1);
        spec = copy_case({0, 1});
        EXPECT_EQ(session.measure(spec).has_value(), group.rank() < 2);
        EXPECT_EQ(mpi.splits(), 2);
      },
      libraries);
}

// MPI libraries read many settings where a communicator is made; what a case has set, the next has no more.
TEST(Session, SettingsComeBeforeACommunicatorOfTheirOwn) {
  std::vector<std::shared_ptr<MpiLibrary>> libraries;
  for (int rank = 0; rank < 3; ++rank) libraries.push_back(std::make_shared<FakeMpi>(3));
  with_sessions(
      host_devices(3), 3,
      [&](Session& session, Group& group) {
        auto& mpi = static_cast<FakeMpi&>(*libraries[static_cast<std::size_t>(group.rank())]);
        CaseSpec spec = copy_case({0, 1, 2}, Pattern::kAllgather);
        spec.mechanism.settings = "A=1";
        expect_refused(session, spec, "mpi, ucx and ccl");  // copy engines have none
        EXPECT_EQ(mpi.settled, "");
        spec.mechanism.transport = "mpi";
        const auto measured_under = [&](const std::string& settings) {
          spec.mechanism.settings = settings;
          try {  // the stand-in has communicators and no calls
            (void)session.measure(spec);
          } catch (const Error&) {
          }
          return mpi.settled;
        };
        const int before = mpi.splits();  // one of A=1, though nothing went over it
        EXPECT_EQ(measured_under("A=1"), "A=1");
        EXPECT_EQ(measured_under("A=2 B=1"), "A=2 B=1");
        EXPECT_EQ(measured_under("A=1"), "A=1");
        EXPECT_EQ(mpi.splits(), before + 1);
        EXPECT_EQ(measured_under(""), "");
        EXPECT_EQ(mpi.splits(), before + 1);  // on the world
        if (group.rank() == 2) mpi.refused = "C";
        spec.mechanism.settings = "C=1";
        expect_refused(session, spec, "rank 2: no one changes C");
        EXPECT_EQ(session.measure(copy_case({0, 1})).has_value(), group.rank() < 2);
      },
      libraries);
}

// What each group does is verified by itself; rank k of group g is lane g, whoever keeps the time.
TEST(Session, GroupsDoTheSameSideBySide) {
  with_sessions(5, [](Session& session, Group& group) {
    for (const Pattern pattern : {Pattern::kAllreduce, Pattern::kAllgather, Pattern::kAlltoall, Pattern::kBroadcast,
                                  Pattern::kOneToAll, Pattern::kRingShift}) {
      CaseSpec spec = copy_case({4, 1, 0, 3}, pattern);
      spec.places.groups = 2;
      spec.traffic.root = 1;
      const auto result = session.measure(spec);
      if (group.rank() == 2) {
        EXPECT_FALSE(result.has_value());
        continue;
      }
      expect_good(result);
      EXPECT_EQ(result->lanes, (std::vector<std::string>{"0-1", "2-3"}));
      const int lane = group.rank() == 4 || group.rank() == 1 ? 0 : 1;
      for (const Sample& sample : result->measurement.samples) EXPECT_EQ(sample.lane, lane);
      const bool root = group.rank() == 1 || group.rank() == 3;
      EXPECT_EQ(result->measurement.samples.empty(), pattern == Pattern::kOneToAll && !root);
    }
    expect_good(session.measure(copy_case({0, 1, 2, 3, 4}, Pattern::kAllreduce)));
  });
}

// A rank of one group that receives wrong data ends the case for all; a rank that fails is told to all, and what comes
// after is measured.
TEST(Session, WhatGoesWrongInOneGroupEndsTheCaseOfAll) {
  with_sessions(4, [](Session& session, Group& group) {
    CaseSpec spec = copy_case({0, 1, 2, 3}, Pattern::kAllgather);
    spec.places.groups = 2;
    for (const char* phase : {"prepare", "check", "warmup", "time", "final_check"}) {
      Fault fault;
      fault.kind = FaultKind::kThrow;
      fault.phase = from_word<Moment>(phase);
      fault.rank = 3;
      set_fault(session, fault);
      if (group.rank() == 3) {
        EXPECT_ANY_THROW(session.measure(spec)) << phase;
      } else {
        EXPECT_THROW(session.measure(spec), PeerError) << phase;
      }
      set_fault(session, std::nullopt);
      expect_good(session.measure(spec));
    }
  });
}

TEST(Session, WrongCasesAreNamedOnEveryRank) {
  with_sessions(2, [](Session& session, Group& /*group*/) {
    const auto wrong = [&](const std::function<void(CaseSpec&)>& change) {
      CaseSpec spec = copy_case({0, 1});
      change(spec);
      EXPECT_THROW(session.measure(spec), CallerError);
    };
    wrong([](CaseSpec& spec) { spec.places.rank_list = {0, 0}; });
    wrong([](CaseSpec& spec) { spec.places.rank_list = {0, 2}; });
    wrong([](CaseSpec& spec) { spec.places.devices = {0}; });
    wrong([](CaseSpec& spec) { spec.places.devices = {0, 2}; });
    wrong([](CaseSpec& spec) { spec.places.groups = 2; });
    wrong([](CaseSpec& spec) { spec.places.groups = 0; });
    wrong([](CaseSpec& spec) { spec.traffic.root = 2; });
    wrong([](CaseSpec& spec) { spec.traffic.window = 0; });
    wrong([](CaseSpec& spec) { spec.traffic.size_bytes = -1; });
    wrong([](CaseSpec& spec) { spec.mechanism.transport = "pigeon"; });
    wrong([](CaseSpec& spec) { spec.timing.stop.time_ns = 0; });
    expect_good(session.measure(copy_case({0, 1})));
  });
}

TEST(Session, WhatCannotBeIsThrown) {
  with_sessions(2, [](Session& session, Group& /*group*/) {
    CaseSpec spec = copy_case({0, 1});
    spec.mechanism.transport = "mpi";  // threads have no MPI
    EXPECT_THROW(session.measure(spec), Unsupported);
    spec = copy_case({0, 1});
    spec.places.source.kind = MemoryKind::kManaged;
    EXPECT_THROW(session.measure(spec), Unsupported);
    expect_good(session.measure(copy_case({0, 1})));
  });
}

// A stored lane has 16 bits: one that wrapped would be another rank's.
TEST(Session, MoreLanesThanCanBeToldApartAreRefused) {
  std::vector<int> ranks(32'768);
  std::iota(ranks.begin(), ranks.end(), 0);
  EXPECT_EQ(why_not_told_apart(copy_case(ranks, Pattern::kLocalCopy)), "");
  ranks.push_back(32'768);
  EXPECT_EQ(why_not_told_apart(copy_case(ranks, Pattern::kAllgather)), "") << "these are one lane";
  const std::string reason = why_not_told_apart(copy_case(ranks, Pattern::kLocalCopy));
  EXPECT_NE(reason.find("32769 lanes: a case has at most 32768"), std::string::npos) << reason;
  ranks.resize(40'000);
  std::iota(ranks.begin(), ranks.end(), 0);
  CaseSpec spec = copy_case(ranks, Pattern::kAllgather);
  spec.places.groups = 40'000;
  EXPECT_NE(why_not_told_apart(spec), "");
}

TEST(Session, MoreMemoryThanThereIsFailsOnEveryRank) {
  with_sessions(2, [](Session& session, Group& /*group*/) {
    CaseSpec spec = copy_case({0, 1});
    spec.traffic.size_bytes = std::int64_t{1} << 50;
    EXPECT_THROW(session.measure(spec), Error);
    expect_good(session.measure(copy_case({0, 1})));
  });
}

class FaultPhase : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Phases, FaultPhase, testing::Values("check", "warmup", "time", "final_check"));

TEST_P(FaultPhase, AFailureReachesTheOthersAndLeavesTheSessionUsable) {
  with_sessions(3, [](Session& session, Group& group) {
    set_fault(session, Fault{FaultKind::kThrow, from_word<Moment>(GetParam()), -1, 1});
    try {
      session.measure(copy_case({0, 1, 2}, Pattern::kAlltoall));
      ADD_FAILURE() << "rank " << group.rank() << " must not return";
    } catch (const PeerError&) {
      EXPECT_NE(group.rank(), 1);
    } catch (const RuntimeCallError& error) {
      EXPECT_EQ(group.rank(), 1);
      EXPECT_EQ(error.call(), "fault");
    }
    set_fault(session, std::nullopt);
    expect_good(session.measure(copy_case({0, 1, 2}, Pattern::kAlltoall)));
  });
}

// Rank 0 then has its queue held, and 64 MiB to copy once it is opened: that is over before its memory goes.
TEST(Session, AFailureUnderHeldQueuesEndsThemBeforeTheirMemory) {
  with_sessions(2, [](Session& session, Group& group) {
    CaseSpec spec = copy_case({0, 1}, Pattern::kLocalCopy);
    spec.traffic.size_bytes = std::int64_t{64} << 20;
    spec.timing.cadence = Cadence::kGated;
    spec.timing.clock = ClockKind::kEvent;
    spec.timing.batch = 3;
    set_fault(session, Fault{FaultKind::kThrow, Moment::kTime, -1, 1});
    if (group.rank() == 0) {
      EXPECT_THROW(session.measure(spec), PeerError);
    } else {
      EXPECT_THROW(session.measure(spec), RuntimeCallError);
    }
    set_fault(session, std::nullopt);
    expect_good(session.measure(copy_case({0, 1})));
  });
}

// A rank that has no operation to give back lets those go that have: of its group of ranks and of the case.
TEST(Session, ARankThatFailsBeforeItHasAnOperationKeepsNoneOfItsGroupWaiting) {
  with_sessions(4, [](Session& session, Group& group) {
    CaseSpec spec = copy_case({0, 1, 2, 3}, Pattern::kAllgather);
    spec.places.groups = 2;
    CaseSpec unlike = spec;
    unlike.mechanism.cpu_node = 0;  // of no collective, which only this rank is told to be one of
    if (group.rank() == 3) {
      EXPECT_THROW(session.measure(unlike), Unsupported);
    } else {
      EXPECT_THROW(session.measure(spec), PeerError);
    }
    expect_good(session.measure(spec));
  });
}

TEST(Fault, SlowCopiesTakeLongerAndAreRight) {
  with_sessions(2, [](Session& session, Group& group) {
    CaseSpec spec = copy_case({0, 1});
    spec.traffic.size_bytes = std::int64_t{8} << 20;
    const auto least_ns = [&] {
      const auto result = session.measure(spec);
      expect_good(result);
      std::int64_t least = 0;
      for (const Sample& sample : result->measurement.samples)
        if (least == 0 || sample.ns < least) least = sample.ns;
      return least;
    };
    const std::int64_t usual = least_ns();
    set_fault(session, Fault{FaultKind::kSlow, Moment::kPrepare, -1, 0, 16});
    const std::int64_t slow = least_ns();
    set_fault(session, std::nullopt);
    // Sixteen times the bytes: far more than noise makes of it.
    if (group.rank() == 0) {
      EXPECT_GT(slow, 2 * usual);
    }
  });
}

TEST_P(FaultPhase, FlippedBytesAreCaught) {
  const std::string phase = GetParam();
  with_sessions(2, [&](Session& session, Group& group) {
    CaseSpec spec = copy_case({0, 1});
    // By default the first and the final operation are checked; each one where asked.
    spec.timing.verify_each = phase == "warmup" || phase == "time";
    set_fault(session, Fault{FaultKind::kCorrupt, from_word<Moment>(phase), phase == "time" ? 5 : -1, 1});
    const auto result = session.measure(spec);
    ASSERT_TRUE(result.has_value());
    EXPECT_FALSE(result->measurement.verified);
    EXPECT_EQ(result->measurement.stopped_by, "corrupt");
    if (group.rank() == 1) {
      EXPECT_FALSE(result->measurement.verify.ok);
      EXPECT_EQ(result->measurement.verify.bad_bytes, 2U) << "one at either end";
      EXPECT_EQ(result->measurement.verify.first_bad_offset, 0U);
    }
    set_fault(session, std::nullopt);
    expect_good(session.measure(spec));
  });
}

thread_local bool of_rank_1 = false;
std::atomic<bool> went_on{false};

// Ends the process: with 0 where the signal acts before its rank goes on, and on the rank's thread where it is to.
[[noreturn]] void signalled(Moment phase) {
  constexpr auto before = [](int) { _exit(went_on ? 1 : 0); };
  constexpr auto on_its_thread = [](int) { _exit(of_rank_1 ? 0 : 1); };
  std::signal(SIGSEGV, phase == Moment::kTime ? before : on_its_thread);
  with_sessions(2, [&](Session& session, Group& group) {
    CaseSpec spec = copy_case({0, 1});
    spec.traffic.size_bytes = 8;
    spec.timing.stop.samples = 1;
    of_rank_1 = group.rank() == 1;
    set_fault(session, Fault{FaultKind::kSegv, phase, -1, 1});
    session.measure(spec);
    went_on = true;
  });
  _exit(2);
}

// What ends a case is not taken for the next one's: real faults act on the thread that runs into them.
TEST(Fault, ASignalActsBeforeItsRankGoesOn) {
  EXPECT_EXIT(signalled(Moment::kCheck), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(signalled(Moment::kTime), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(signalled(Moment::kRelease), testing::ExitedWithCode(0), "");
}

TEST(Fault, WordsAreChecked) {
  EXPECT_EQ(from_word<FaultKind>("kill"), FaultKind::kKill);
  EXPECT_THROW(from_word<FaultKind>("explode"), CallerError);
}

}  // namespace
}  // namespace linkgauge
