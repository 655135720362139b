// The allreduce that pushes (kernels/push.h), with a thread of this process for every thread of every rank's grid: the
// very text that the device's kernels are made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "fewer.h"
#include "thread_grid.h"

namespace linkgauge {
namespace {

struct PushCase {
  Shape shape;
  std::size_t bytes;
  u32 datatype = values::kFloat32;
  u32 op = values::kSum;
  bool in_place = false;
  bool by_flag = true;
  u64 patience_ns = 60'000'000'000;
};

struct PushRank {
  explicit PushRank(const PushCase& test)
      : source(test.bytes),
        target(test.bytes),
        scratch(push::scratch_bytes(test.bytes, test.shape.ranks)),
        start(static_cast<std::size_t>(test.shape.blocks) * push::kStartStride) {}
  void say_to_blocks(u64 word) {
    for (std::size_t at = 0; at < start.size(); at += push::kStartStride)
      std::atomic_ref<u64>(start[at]).store(word, std::memory_order_release);
  }
  Memory source;
  Memory target;
  Memory scratch;  // zeroed
  std::array<u64, push::kOwnWords> words{};
  std::array<u64, 2> failure{};
  u64 done = 0;
  std::vector<u64> start;
};

using Ranks = std::vector<std::unique_ptr<PushRank>>;

Ranks ranks_of(const PushCase& test) {
  Ranks ranks;
  for (int rank = 0; rank < test.shape.ranks; ++rank) ranks.push_back(std::make_unique<PushRank>(test));
  return ranks;
}

push::Job job_of(const PushCase& test, const Ranks& ranks, int rank, u64 epoch) {
  PushRank& mine = *ranks[static_cast<std::size_t>(rank)];
  push::Job job{};
  for (std::size_t other = 0; other < ranks.size(); ++other)
    job.scratches[other] = reinterpret_cast<push::Line*>(ranks[other]->scratch.data());
  job.own = job.scratches[rank];
  job.source = test.in_place ? mine.target.data() : mine.source.data();
  job.target = mine.target.data();
  job.bytes = test.bytes;
  job.epoch = epoch;
  job.patience = test.patience_ns;
  job.words = mine.words.data();
  job.failure = mine.failure.data();
  job.done = test.by_flag ? &mine.done : nullptr;
  job.ranks = test.shape.ranks;
  job.rank = rank;
  job.op = test.op;
  return job;
}

struct Push {
  ThreadExec& exec;
  const push::Job& job;
  template <u32 kDatatype>
  void run() {
    push::allreduce<kDatatype>(exec, job);
  }
};

auto body_of(const PushCase& test, const push::Job& job) {
  return [job, datatype = test.datatype](ThreadExec& exec, Block&) {
    Push push{exec, job};
    elements::with_datatype(datatype, push);
  };
}

// `operations` of every rank, with nothing but the lines between the ranks: each checks its target as soon as it knows
// of its end, then makes new operands and poisons its target, while others may still be at it.
void expect_right(const PushCase& test, u64 operations, u64 first_epoch = 1) {
  const Ranks ranks = ranks_of(test);
  const Data data{test.datatype, test.op, test.shape.ranks};
  std::vector<std::size_t> wrong(ranks.size());
  std::vector<std::vector<unsigned char>> last(ranks.size());
  std::vector<std::thread> hosts;
  for (int rank = 0; rank < test.shape.ranks; ++rank) {
    hosts.emplace_back([&, rank] {
      PushRank& mine = *ranks[static_cast<std::size_t>(rank)];
      std::mt19937 random(static_cast<unsigned>(rank));
      for (u64 epoch = first_epoch; epoch < first_epoch + operations; ++epoch) {
        if (!test.in_place) std::memset(mine.target.data(), 0xa5, test.bytes);
        fill(test.in_place ? mine.target.data() : mine.source.data(), test.bytes, data, epoch, rank);
        if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        std::size_t& bad = wrong[static_cast<std::size_t>(rank)];
        {
          const ThreadGrid grid(test.shape, body_of(test, job_of(test, ranks, rank, epoch)));
          if (test.by_flag) {  // the target is right already when the host's word says so
            while (std::atomic_ref<u64>(mine.done).load(std::memory_order_acquire) != epoch) std::this_thread::yield();
            bad += wrong_bytes(mine.target.data(), test.bytes, data, epoch);
          }
        }
        if (!test.by_flag) bad += wrong_bytes(mine.target.data(), test.bytes, data, epoch);
      }
      last[static_cast<std::size_t>(rank)].assign(mine.target.data(), mine.target.data() + test.bytes);
    });
  }
  for (std::thread& host : hosts) host.join();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(wrong[rank], 0U) << "rank " << rank << " of " << test.shape.ranks << ", " << test.bytes
                               << " bytes of type " << test.datatype << ", op " << test.op
                               << (test.in_place ? ", in place" : "");
    EXPECT_EQ(ranks[rank]->failure[0], 0U);
    EXPECT_EQ(last[rank], last[0]) << "rank " << rank << ": not the same bits as rank 0";
  }
}

TEST(Push, EverySizeGridAndNumberOfRanksIsRight) {
  for (const Shape& shape : {Shape{2, 1, 1}, Shape{2, 3, 2}, Shape{3, 2, 3}, Shape{4, 2, 2}, Shape{5, 1, 4},
                             Shape{6, 1, 2}, Shape{7, 2, 1}, Shape{8, 1, 2}}) {
    for (const std::size_t elements : {1U, 2U, 3U, 5U, 21U, 64U, 333U}) {
      if (kFewRanks && (elements == 2 || elements == 5 || elements == 64)) continue;
      PushCase test{shape, 4 * elements};
      test.by_flag = elements % 2 == 1;
      test.in_place = elements % 3 == 0;
      expect_right(test, 3);
    }
  }
}

TEST(Push, EveryDatatypeAndOpIsRightForEveryRest) {
  for (u32 datatype = 0; datatype < 12; ++datatype) {
    for (u32 op = 0; op < 5; ++op) {
      // A power of two: the average is then exact.
      PushCase test{{4, 2, 1}, (16 + (datatype + op) % 9) * values::element_bytes(datatype), datatype, op};
      test.in_place = op % 2 == 1;
      expect_right(test, 1);
    }
  }
}

TEST(Push, ManyOperationsOfSkewedRanksStayInStep) {
  for (const bool by_flag : {false, true}) {
    PushCase test{{3, 2, 2}, 404};
    test.by_flag = by_flag;
    expect_right(test, 60);
  }
}

// The lines hold the number's low half, and operations go on where it begins anew.
TEST(Push, NumbersBeyond32BitsAreRight) { expect_right({{2, 1, 2}, 100}, 6, 0xfffffffdULL); }

// A kernel that stays: the host gives it the next operation as soon as it knows of the last one's end, or after a
// while, has read the target and has written new operands.
TEST(Push, AResidentKernelDoesOneOperationAfterTheOther) {
  for (const Shape& shape : {Shape{2, 1, 1}, Shape{2, 3, 2}, Shape{3, 2, 2}, Shape{5, 1, 2}}) {
    for (const bool in_place : {false, true}) {
      PushCase test{shape, 404};
      test.in_place = in_place;
      constexpr u64 kOperations = 25;
      const Ranks ranks = ranks_of(test);
      const Data data{test.datatype, test.op, test.shape.ranks};
      std::vector<std::thread> hosts;
      for (int rank = 0; rank < test.shape.ranks; ++rank) {
        hosts.emplace_back([&, rank] {
          PushRank& mine = *ranks[static_cast<std::size_t>(rank)];
          std::mt19937 random(static_cast<unsigned>(rank));
          push::Job job = job_of(test, ranks, rank, 1);
          job.start = mine.start.data();
          const ThreadGrid grid(test.shape, body_of(test, job));
          for (u64 epoch = 1; epoch <= kOperations; ++epoch) {
            if (!in_place) std::memset(mine.target.data(), 0xa5, test.bytes);
            fill(in_place ? mine.target.data() : mine.source.data(), test.bytes, data, epoch, rank);
            if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
            mine.say_to_blocks(epoch);
            while (std::atomic_ref<u64>(mine.done).load(std::memory_order_acquire) != epoch) std::this_thread::yield();
            EXPECT_EQ(wrong_bytes(mine.target.data(), test.bytes, data, epoch), 0U) << "rank " << rank << ", " << epoch;
          }
          mine.say_to_blocks(push::kLeave);
        });
      }
      for (std::thread& host : hosts) host.join();
      for (const auto& rank : ranks) EXPECT_EQ(rank->failure[0], 0U);
    }
  }
}

// It tells of the rank that did not come, takes no further operation for right, and leaves when it is told to.
TEST(Push, AResidentKernelOutlivesAFailureUntilItIsToldToLeave) {
  PushCase test{{3, 2, 2}, 64};
  test.patience_ns = 200'000'000;
  const Ranks ranks = ranks_of(test);
  PushRank& mine = *ranks[0];
  push::Job job = job_of(test, ranks, 0, 1);
  job.start = mine.start.data();
  const ThreadGrid grid(test.shape, body_of(test, job));
  for (u64 epoch = 1; epoch <= 2; ++epoch) {
    mine.say_to_blocks(epoch);
    while (std::atomic_ref<u64>(mine.done).load(std::memory_order_acquire) != epoch) std::this_thread::yield();
    EXPECT_EQ(direct::failure_of(std::atomic_ref<u64>(mine.failure[0]).load()).epoch, 1U);
  }
  mine.say_to_blocks(push::kLeave);
}

// A rank whose target would be wrong had it taken an older operation's lines for this one's.
TEST(Push, LinesOfAnotherOperationAreNotTaken) {
  PushCase test{{2, 1, 1}, 8};
  test.patience_ns = 300'000'000;
  const Ranks ranks = ranks_of(test);
  auto* own = reinterpret_cast<push::Line*>(ranks[0]->scratch.data());
  for (u64 line = 0; line < push::scratch_bytes(test.bytes, 2) / sizeof(push::Line); ++line)
    own[line] = {{5ULL << 32 | 1, 3ULL << 32 | 1}};  // the halves of two operations: neither is whole
  { const ThreadGrid grid(test.shape, body_of(test, job_of(test, ranks, 0, 5))); }
  EXPECT_NE(ranks[0]->failure[0], 0U);
}

// A rank that never launches: the others leave in a bounded time and say who was missing; so does what is queued
// behind.
TEST(Push, ARankThatNeverComesEndsTheWait) {
  PushCase test{{6, 2, 2}, 500};
  test.patience_ns = 500'000'000;
  const Ranks ranks = ranks_of(test);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> hosts;
  for (int rank = 0; rank < 5; ++rank) {
    hosts.emplace_back([&, rank] {
      for (u64 epoch = 7; epoch < 9; ++epoch) {
        const ThreadGrid grid(test.shape, body_of(test, job_of(test, ranks, rank, epoch)));
      }
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  for (std::size_t rank = 0; rank < 5; ++rank) {
    ASSERT_NE(ranks[rank]->failure[0], 0U);
    const direct::Failure failure = direct::failure_of(ranks[rank]->failure[0]);
    EXPECT_EQ(failure.epoch, 7U);
    EXPECT_EQ(failure.meeting, push::kMeetingNone);
    EXPECT_EQ(failure.peer, 5);
    EXPECT_LT(failure.block, 2U);
    EXPECT_EQ(ranks[rank]->done, 8U);  // the host is told of the end all the same
  }
}

// The host's word ends the wait long before the patience does.
TEST(Push, TheHostCanEndTheWait) {
  const PushCase test{{2, 2, 2}, 256};
  const Ranks ranks = ranks_of(test);
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic_ref<u64>(ranks[0]->failure[1]).store(1);
  });
  { const ThreadGrid grid(test.shape, body_of(test, job_of(test, ranks, 0, 1))); }
  host.join();
  EXPECT_NE(ranks[0]->failure[0], 0U);
}

// The scratch holds exactly two slots of each rank's lines, whose places never meet.
TEST(Push, PlacesFillTheScratch) {
  for (const u64 bytes : {1U, 8U, 9U, 4096U}) {
    for (int ranks = 2; ranks <= direct::kMostRanks; ++ranks) {
      push::Job job{};
      job.bytes = bytes;
      job.ranks = ranks;
      std::vector<bool> taken(push::scratch_bytes(bytes, ranks) / sizeof(push::Line));
      for (const u64 epoch : {1U, 2U}) {
        for (int rank = 0; rank < ranks; ++rank) {
          for (u64 line = 0; line < push::lines_of(bytes); ++line) {
            const auto at = static_cast<std::size_t>(push::place_of(job, epoch, rank) + line);
            ASSERT_LT(at, taken.size());
            EXPECT_FALSE(taken[at]);
            taken[at] = true;
          }
        }
      }
      EXPECT_EQ(std::count(taken.begin(), taken.end(), false), 0);
    }
  }
}

}  // namespace
}  // namespace linkgauge
