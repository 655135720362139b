// Jobs beside the measured one: they go on while it has its samples, on ranks of their own, and what fails of theirs is
// theirs.
#include "measure/load.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <numeric>
#include <thread>

#include "base/errors.h"
#include "case_maker.h"
#include "planted_faults.h"
#include "run/session.h"
#include "with_sessions.h"

namespace linkgauge {
namespace {

CaseSpec job_on(std::vector<int> ranks, Pattern pattern, const char* transport = "copy_engine") {
  CaseSpec spec = case_of(transport, pattern, 0, 65'536);
  spec.places.rank_list = ranks;
  spec.places.devices = std::move(ranks);
  spec.timing.stop.kind = StopRuleKind::kCount;
  spec.timing.stop.samples = 6;
  spec.timing.stop.time_ns = 20'000'000'000;
  return spec;
}

// Two measured ranks, and loads of two more and of one.
CaseSpec beside_two_loads() {
  CaseSpec spec = job_on({1, 3}, Pattern::kPingpong);
  spec.jobs.loads.push_back({job_on({0, 4}, Pattern::kAlltoall, "kernel"), {}});
  spec.jobs.loads.push_back({job_on({2}, Pattern::kLocalCopy), {}});
  return spec;
}

void on_host_devices(int size, const std::function<void(Session&, Group&)>& body) {
  with_sessions(host_devices(size), size, body);
}

// Sets whether each load was under way as the last sample ended; what else loads do is expected.
void measure_beside_loads(bool& until_after_the_last) {
  const CaseSpec spec = beside_two_loads();
  std::vector<std::optional<CaseResult>> results(6);
  on_host_devices(6, [&](Session& session, Group& group) {
    results[static_cast<std::size_t>(group.rank())] = session.measure(spec);
  });
  EXPECT_FALSE(results[5].has_value());
  until_after_the_last = true;
  std::int64_t first_ns = INT64_MAX;
  std::int64_t last_ns = 0;
  for (const int rank : {1, 3}) {
    const Measurement& measured = results[static_cast<std::size_t>(rank)]->measurement;
    EXPECT_TRUE(measured.verified);
    EXPECT_EQ(measured.stopped_by, "count");
    EXPECT_EQ(results[static_cast<std::size_t>(rank)]->load.number, 0);
    std::map<Phase, int> counts;
    for (const Sample& sample : measured.samples) ++counts[sample.phase];
    EXPECT_EQ(counts[Phase::kSample], counts[Phase::kAlone]);
    for (const Sample& sample : measured.samples) {
      if (sample.phase != Phase::kSample) continue;
      first_ns = std::min(first_ns, sample.start_ns);
      last_ns = std::max(last_ns, sample.start_ns + sample.ns);
    }
  }
  for (const auto& [rank, number] : {std::pair{0, 1}, {4, 1}, {2, 2}}) {
    const LoadReport& load = results[static_cast<std::size_t>(rank)]->load;
    EXPECT_EQ(load.number, number);
    EXPECT_TRUE(load.verified) << load.verify.where;
    EXPECT_EQ(load.failure, "");
    EXPECT_TRUE(results[static_cast<std::size_t>(rank)]->measurement.samples.empty());
    ASSERT_GE(load.stretches.size(), 4U);
    EXPECT_LT(load.stretches.front().start_ns + load.stretches.front().ns, first_ns);
    const Stretch& last = load.stretches.back();
    until_after_the_last = until_after_the_last && last.start_ns + last.ns >= last_ns;
    using When = Stretch::When;
    for (const When when : {When::kAlone, When::kBeside}) {
      const auto is_then = [&](const Stretch& one) { return one.when == when; };
      EXPECT_TRUE(std::any_of(load.stretches.begin(), load.stretches.end(), is_then));
    }
    // Beside are the rounds of samples; while the measured job is alone the load rests.
    for (const Stretch& one : load.stretches) {
      for (const Sample& sample : results[1]->measurement.samples) {
        const bool apart = one.start_ns + one.ns <= sample.start_ns || sample.start_ns + sample.ns <= one.start_ns;
        if (sample.phase == Phase::kAlone) {
          EXPECT_TRUE(apart);
        }
        if (sample.phase == Phase::kSample && !apart) {
          EXPECT_EQ(one.when, When::kBeside);
        }
      }
    }
    const auto sum = [](std::int64_t total, const Stretch& one) { return total + one.operations; };
    EXPECT_EQ(std::accumulate(load.stretches.begin(), load.stretches.end(), std::int64_t{2}, sum),
              load.operations_total);
  }
  // All ranks of a load do as many operations.
  EXPECT_EQ(results[0]->load.operations_total, results[4]->load.operations_total);
}

TEST(Load, GoesOnFromBeforeTheFirstSampleUntilAfterTheLast) {
  // A load that waits for a core between two stretches as the last sample ends has not the second.
  bool until_after_the_last = false;
  for (int attempt = 0; attempt < 5 && !until_after_the_last; ++attempt) measure_beside_loads(until_after_the_last);
  EXPECT_TRUE(until_after_the_last);
}

double rate_of(const LoadReport& load) {
  double operations = 0;
  double ns = 0;
  for (const Stretch& one : load.stretches) {
    operations += static_cast<double>(one.operations);
    ns += static_cast<double>(one.ns);
  }
  return operations / ns;
}

TEST(Load, KeepsToItsPace) {
  CaseSpec spec = job_on({0, 1}, Pattern::kUnidirectional);
  spec.timing.stop.kind = StopRuleKind::kDuration;
  spec.timing.stop.time_ns = 60'000'000;
  const CaseSpec copies = job_on({2}, Pattern::kLocalCopy);
  spec.jobs.loads.push_back({copies, {.burst = 2, .every_ns = 4'000'000}});
  spec.jobs.loads.push_back({job_on({3}, Pattern::kLocalCopy), {.duty = 0.02}});
  spec.jobs.loads.push_back({job_on({4}, Pattern::kLocalCopy), {}});
  std::vector<double> rates(5);
  on_host_devices(5, [&](Session& session, Group& group) {
    const auto result = session.measure(spec);
    if (group.rank() >= 2) rates[static_cast<std::size_t>(group.rank())] = rate_of(result->load);
  });
  EXPECT_LE(rates[2], 2 / 4e6);  // a stretch that is less than a burst has its time all the same
  EXPECT_LT(rates[3], rates[4] / 4);
}

// After each rest, and not between its stretches.
TEST(Load, BeginsItsOffsetLater) {
  constexpr std::int64_t kOffsetNs = 3'000'000;
  CaseSpec spec = job_on({0, 1}, Pattern::kUnidirectional);
  spec.jobs.loads.push_back({job_on({2}, Pattern::kLocalCopy), {.offset_ns = kOffsetNs}});
  on_host_devices(3, [&](Session& session, Group& group) {
    const auto result = session.measure(spec);
    if (group.rank() != 2) return;
    std::int64_t ended_ns = 0;
    int later = 0;
    for (const Stretch& one : result->load.stretches) {
      if (one.start_ns - ended_ns >= kOffsetNs) ++later;
      ended_ns = one.start_ns + one.ns;
    }
    EXPECT_GE(later, 2);
  });
}

// However soon the median is known.
TEST(Load, IsMeasuredBesideForSixWindowsAtLeast) {
  CaseSpec spec = job_on({0, 1}, Pattern::kUnidirectional);
  spec.timing.stop.kind = StopRuleKind::kInterval;
  spec.timing.stop.relative_half_width = 0.9;
  spec.timing.stop.samples = 1000;
  spec.jobs.loads.push_back({job_on({2}, Pattern::kLocalCopy), {}});
  on_host_devices(3, [&](Session& session, Group& group) {
    const auto result = session.measure(spec);
    if (group.rank() != 0) return;
    const std::vector<Sample>& samples = result->measurement.samples;
    const auto beside = [](const Sample& one) { return one.phase == Phase::kSample; };
    EXPECT_GE(std::count_if(samples.begin(), samples.end(), beside), 30);
  });
}

TEST(Load, SharesNoRankWithAnotherJob) {
  CaseSpec spec = job_on({0, 1}, Pattern::kPingpong);
  spec.jobs.loads.push_back({job_on({1}, Pattern::kLocalCopy), {}});
  CaseSpec nested = job_on({0, 1}, Pattern::kPingpong);
  nested.jobs.loads.push_back({beside_two_loads(), {}});
  CaseSpec idle = job_on({0, 1}, Pattern::kPingpong);
  idle.jobs.loads.push_back({job_on({2}, Pattern::kLocalCopy), {.duty = 0}});
  on_host_devices(5, [&](Session& session, Group&) {
    EXPECT_THROW(session.measure(spec), CallerError);
    EXPECT_THROW(session.measure(nested), CallerError);
    EXPECT_THROW(session.measure(idle), CallerError);
  });
}

TEST(Load, ThatCannotRunSkipsTheCaseOnAllRanks) {
  CaseSpec spec = job_on({0, 1}, Pattern::kPingpong);
  spec.jobs.loads.push_back({job_on({2, 3}, Pattern::kAlltoall, "ccl"), {}});
  on_host_devices(4, [&](Session& session, Group&) {
    EXPECT_THROW(session.measure(spec), Unsupported);
    EXPECT_TRUE(session.measure(job_on({0, 1, 2, 3}, Pattern::kAlltoall))->measurement.verified);
  });
}

// Two launches, each of threads of its own, with a line between their first ranks. What each rank of both threw.
struct TwoLaunches {
  CaseSpec measured = job_on({1, 0}, Pattern::kPingpong);
  CaseSpec load = job_on({0, 2}, Pattern::kAlltoall, "kernel");
  std::array<std::optional<CaseResult>, 2> results;
  std::array<std::optional<CaseResult>, 3> of_load;
  std::array<std::string, 2> failures;

  void run(const std::function<void(Session&, Group&)>& before_load = {}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    load.jobs.pace = Pace{};
    std::thread other([&] {
      on_host_devices(3, [&](Session& session, Group& group) {
        if (before_load) before_load(session, group);
        CaseSpec mine = load;
        mine.jobs.lines = {group.rank() == 0 ? ends[1] : -1};
        try {
          of_load[static_cast<std::size_t>(group.rank())] = session.measure(mine);
        } catch (const std::exception&) {
          EXPECT_TRUE(before_load);
        }
        if (group.rank() == 0) ::shutdown(ends[1], SHUT_RDWR);
      });
    });
    on_host_devices(2, [&](Session& session, Group& group) {
      CaseSpec mine = measured;
      mine.jobs.lines = {group.rank() == 1 ? ends[0] : -1};
      const auto rank = static_cast<std::size_t>(group.rank());
      try {
        results[rank] = session.measure(mine);
      } catch (const PeerError& error) {
        failures[rank] = error.what();
      }
      if (group.rank() == 1) ::shutdown(ends[0], SHUT_RDWR);
      EXPECT_TRUE(session.measure(job_on({0, 1}, Pattern::kPingpong))->measurement.verified);
    });
    other.join();
    for (const int end : ends) ::close(end);
  }
};

TEST(Load, OfAnotherLaunchGoesOnWhileTheMeasuredJobIsBesideIt) {
  TwoLaunches both;
  both.run();
  const std::vector<Sample>& samples = both.results[1]->measurement.samples;
  const auto in = [&](Phase phase) {
    return std::count_if(samples.begin(), samples.end(), [&](const Sample& one) { return one.phase == phase; });
  };
  EXPECT_EQ(in(Phase::kSample), in(Phase::kAlone));
  EXPECT_GT(in(Phase::kAlone), 0);
  EXPECT_FALSE(both.of_load[1].has_value());
  for (const std::size_t rank : {0U, 2U}) {
    const LoadReport& load = both.of_load[rank]->load;
    EXPECT_EQ(load.number, 1);
    EXPECT_TRUE(load.verified);
    EXPECT_TRUE(both.of_load[rank]->measurement.samples.empty());
    for (const Stretch& stretch : load.stretches) {
      for (const Sample& one : samples) {
        const bool apart = stretch.start_ns + stretch.ns <= one.start_ns || one.start_ns + one.ns <= stretch.start_ns;
        if (one.phase == Phase::kAlone) {
          EXPECT_TRUE(apart);
        }
      }
    }
  }
}

TEST(Load, OfAnotherLaunchThatFailsBeforeItsRateFailsTheCaseOnAllRanks) {
  TwoLaunches both;
  both.run([](Session& session, Group&) {
    Fault fault;
    fault.kind = FaultKind::kThrow;
    fault.phase = Moment::kCheck;
    fault.rank = 2;
    set_fault(session, fault);
  });
  for (const std::string& failure : both.failures)
    EXPECT_NE(failure.find("before it was at its rate"), std::string::npos);
}

TEST(Load, OfAnotherLaunchThatFailsLaterLeavesTheSamples) {
  TwoLaunches both;
  both.run([](Session& session, Group&) {
    Fault fault;
    fault.kind = FaultKind::kThrow;
    fault.phase = Moment::kFinalCheck;
    fault.rank = 2;
    set_fault(session, fault);
  });
  EXPECT_TRUE(both.results[1]->measurement.verified);
  for (const std::size_t rank : {0U, 2U}) {
    ASSERT_TRUE(both.of_load[rank].has_value());
    EXPECT_NE(both.of_load[rank]->load.failure, "");
  }
}

Fault throwing(int rank, const char* phase, std::int64_t sample = -1) {
  Fault fault;
  fault.kind = FaultKind::kThrow;
  fault.phase = from_word<Moment>(phase);
  fault.rank = rank;
  fault.sample = sample;
  return fault;
}

// Before the measured job has begun there is nothing to keep: all of the case's ranks fail.
TEST(Load, ThatFailsBeforeTheFirstSampleFailsTheCase) {
  for (const char* phase : {"prepare", "check"}) {
    for (const int rank : {4, 2}) {
      on_host_devices(6, [&](Session& session, Group& group) {
        set_fault(session, throwing(rank, phase));
        if (group.rank() == 5) {
          EXPECT_FALSE(session.measure(beside_two_loads()).has_value());
        } else {
          EXPECT_ANY_THROW(session.measure(beside_two_loads()));
        }
        set_fault(session, std::nullopt);
        const auto after = session.measure(beside_two_loads());
        if (group.rank() == 1) {
          EXPECT_TRUE(after->measurement.verified);
        }
      });
    }
  }
}

// Later the measured job keeps its samples, and the load's ranks say what became of it.
TEST(Load, ThatFailsBesideTheMeasuredJobIsTold) {
  CaseSpec spec = beside_two_loads();
  spec.timing.stop.kind = StopRuleKind::kDuration;
  spec.timing.stop.time_ns = 300'000'000;
  on_host_devices(6, [&](Session& session, Group& group) {
    set_fault(session, throwing(4, "final_check"));
    const auto result = session.measure(spec);
    const int rank = group.rank();
    if (rank == 1 || rank == 3) {
      EXPECT_TRUE(result->measurement.verified);
    }
    if (rank == 0 || rank == 4) {
      EXPECT_NE(result->load.failure, "");
    }
    if (rank == 2) {
      EXPECT_EQ(result->load.failure, "");
    }
    set_fault(session, std::nullopt);
    const auto after = session.measure(spec);
    if (rank == 4) {
      EXPECT_EQ(after->load.failure, "");
    }
  });
}

TEST(Load, EndsWithTheMeasuredJobThatFails) {
  for (const char* phase : {"prepare", "check", "time", "final_check"}) {
    on_host_devices(6, [&](Session& session, Group& group) {
      set_fault(session, throwing(3, phase));
      if (group.rank() == 5) {
        EXPECT_FALSE(session.measure(beside_two_loads()).has_value());
      } else {
        EXPECT_ANY_THROW(session.measure(beside_two_loads())) << group.rank() << " " << phase;
      }
      set_fault(session, std::nullopt);
      const auto after = session.measure(beside_two_loads());
      if (group.rank() == 1) {
        EXPECT_TRUE(after->measurement.verified);
      }
    });
  }
}

// A signal that comes while a line is full must not cost the number: the other end would wait for it for ever.
TEST(SocketLine, ASignalDoesNotLoseANumber) {
  struct sigaction interrupts {};
  interrupts.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &interrupts, &before), 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const std::int64_t filling = 2;
  std::int64_t filled = 0;
  while (send(ends[0], &filling, sizeof filling, MSG_DONTWAIT) > 0) ++filled;
  std::atomic<bool> said{false};
  std::thread saying([&] {
    SocketLine(ends[0]).say(4);
    said = true;
  });
  for (int signal = 0; signal < 20; ++signal) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pthread_kill(saying.native_handle(), SIGUSR1);
  }
  EXPECT_FALSE(said) << "there is no room for it yet";
  SocketLine line(ends[1]);
  while (line.heard() < 4) std::this_thread::yield();
  saying.join();
  sigaction(SIGUSR1, &before, nullptr);
  for (const int end : ends) close(end);
}

TEST(Load, WhoseDataAreWrongIsNotVerified) {
  Fault fault;
  fault.kind = FaultKind::kCorrupt;
  fault.phase = Moment::kFinalCheck;
  fault.rank = 4;
  on_host_devices(6, [&](Session& session, Group& group) {
    set_fault(session, fault);
    const auto result = session.measure(beside_two_loads());
    if (group.rank() == 1) {
      EXPECT_TRUE(result->measurement.verified);
    }
    if (group.rank() == 0 || group.rank() == 4) {
      EXPECT_FALSE(result->load.verified);
    }
    if (group.rank() == 2) {
      EXPECT_TRUE(result->load.verified);
    }
  });
}

}  // namespace
}  // namespace linkgauge
