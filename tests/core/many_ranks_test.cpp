// A session of many ranks in one process, on host devices: what a rank needs does not grow with the pairs of all.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "case_maker.h"
#include "with_sessions.h"

namespace linkgauge {
namespace {

CaseSpec case_of_bytes(const char* transport, Pattern pattern, int ranks) {
  CaseSpec spec = case_of(transport, pattern, ranks, 8);
  spec.timing.stop.kind = StopRuleKind::kCount;
  spec.timing.stop.samples = 2;
  spec.timing.warmup = 1;
  return spec;
}

// The most threads that this process had while it lived.
class ThreadsWatch {
 public:
  ThreadsWatch() : thread_([this] { watch(); }) {}
  ~ThreadsWatch() { stop(); }
  ThreadsWatch(const ThreadsWatch&) = delete;
  ThreadsWatch& operator=(const ThreadsWatch&) = delete;
  int stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
    return most_;
  }

 private:
  void watch() {
    while (!over_) {
      std::ifstream status("/proc/self/status");
      for (std::string line; std::getline(status, line);) {
        if (line.rfind("Threads:", 0) == 0) most_ = std::max(most_, std::stoi(line.substr(8)));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::atomic<bool> over_{false};
  int most_ = 0;
  std::thread thread_;
};

struct Many {
  const char* transport;
  int ranks;
};

class ManyRanks : public testing::TestWithParam<Many> {};

// Each has a thread of its own and at most six of streams: two of copies, one of checks, one of reductions, and as many
// again while one case's are going and the next one's come.
TEST_P(ManyRanks, MeetAllreduceAndExchange) {
  const auto [transport, ranks] = GetParam();
  if (ranks > 128 && kFewRanks) GTEST_SKIP() << "a minute and more: './lg test --all' has it";
  ThreadsWatch threads;
  with_sessions(host_devices(ranks), ranks, [transport = transport, ranks = ranks](Session& session, Group&) {
    for (const Pattern pattern : {Pattern::kBarrier, Pattern::kAllreduce, Pattern::kAlltoall}) {
      const auto result = session.measure(case_of_bytes(transport, pattern, ranks));
      ASSERT_TRUE(result.has_value());
      EXPECT_TRUE(result->measurement.verified);
    }
  });
  EXPECT_LE(threads.stop(), 7 * ranks + 8);
}

INSTANTIATE_TEST_SUITE_P(Of, ManyRanks,
                         testing::Values(Many{"copy_engine", 128}, Many{"kernel", 128}, Many{"staging", 128},
                                         Many{"copy_engine", 512}),
                         [](const auto& of) { return of.param.transport + std::to_string(of.param.ranks); });

// Of a device that has two streams for a rank's copies; gates hold both while all copies are queued.
TEST(SharedStreams, EveryCadenceAndClock) {
  for (const char* transport : {"copy_engine", "kernel", "staging"}) {
    for (const Cadence cadence : {Cadence::kIsolated, Cadence::kStreaming, Cadence::kGated}) {
      for (const ClockKind clock : {ClockKind::kHost, ClockKind::kEvent}) {
        const bool in_queues = std::string(transport) != "staging";
        if (cadence == Cadence::kGated && clock == ClockKind::kHost) continue;
        if (!in_queues && clock == ClockKind::kEvent) continue;
        with_sessions(host_devices(128), 6, [&](Session& session, Group&) {
          CaseSpec spec = case_of_bytes(transport, Pattern::kAlltoall, 6);
          spec.traffic.size_bytes = 5'000;
          spec.timing.cadence = cadence;
          spec.timing.clock = clock;
          const auto result = session.measure(spec);
          ASSERT_TRUE(result.has_value());
          EXPECT_TRUE(result->measurement.verified);
        });
      }
    }
  }
}

}  // namespace
}  // namespace linkgauge
