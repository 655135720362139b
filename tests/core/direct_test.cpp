// The allreduce whose blocks meet their namesakes on other devices (kernels/direct.h), with a thread of this process
// for every thread of every block of every rank: the very text that the device's kernel is made of. Under the thread
// sanitizer an access that a meeting does not order is an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "fewer.h"
#include "kernels/direct_text.h"
#include "thread_grid.h"

namespace linkgauge {
namespace {

using values::u32;
using values::u64;

struct Rank {
  Rank(std::size_t bytes, int ranks, int blocks)
      : source(bytes),
        target(bytes),
        flags(direct::flag_words(static_cast<u64>(blocks))),
        lists(3 * static_cast<std::size_t>(ranks)) {}
  Memory source;
  Memory target;
  std::vector<u64> flags;
  std::vector<void*> lists;
  u64 failure[2] = {0, 0};
};

void launch(const Shape& shape, const direct::Job& job) {
  ThreadGrid grid(shape, [&job](ThreadExec& exec, Block& shared) {
    direct::PartReducer<ThreadExec> reducer{exec, shared.places, job};
    direct::allreduce(exec, job, shared.places, reducer);
  });
}

struct Case {
  Shape shape;
  u32 mode;
  std::size_t elements;
  u32 datatype = values::kFloat32;
  u32 op = values::kSum;
  bool in_place = false;
  u64 patience_ns = 60'000'000'000;
};

Data data_of(const Case& test) { return {test.datatype, test.op, test.shape.ranks}; }

std::vector<std::unique_ptr<Rank>> ranks_of(const Case& test) {
  const std::size_t bytes = test.elements * values::element_bytes(test.datatype);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < test.shape.ranks; ++rank)
    ranks.push_back(std::make_unique<Rank>(bytes, test.shape.ranks, test.shape.blocks));
  for (const auto& one : ranks) {
    for (std::size_t other = 0; other < ranks.size(); ++other) {
      one->lists[other] = test.in_place ? ranks[other]->target.data() : ranks[other]->source.data();
      one->lists[ranks.size() + other] = ranks[other]->target.data();
      one->lists[2 * ranks.size() + other] = ranks[other]->flags.data();
    }
  }
  return ranks;
}

direct::Job job_of(const Case& test, Rank& mine, int rank, u64 epoch) {
  return {mine.lists.data(), test.shape.ranks, rank,  test.elements,    test.datatype,
          test.op,           test.mode,        epoch, test.patience_ns, mine.failure};
}

// `operations` operations of every rank, with nothing but the kernels' own meetings between the ranks: each rank makes
// new operands and poisons its target as soon as its own kernel has ended, while others may still be at it.
void expect_right(const Case& test, int operations) {
  const std::size_t bytes = test.elements * values::element_bytes(test.datatype);
  const std::vector<std::unique_ptr<Rank>> ranks = ranks_of(test);
  std::vector<std::size_t> wrong(ranks.size());
  std::vector<std::thread> hosts;
  for (int rank = 0; rank < test.shape.ranks; ++rank) {
    hosts.emplace_back([&, rank] {
      Rank& mine = *ranks[static_cast<std::size_t>(rank)];
      std::mt19937 random(static_cast<unsigned>(rank));
      for (int operation = 1; operation <= operations; ++operation) {
        const auto seed = static_cast<u64>(operation);
        if (!test.in_place) std::memset(mine.target.data(), 0xa5, bytes);
        fill(test.in_place ? mine.target.data() : mine.source.data(), bytes, data_of(test), seed, rank);
        if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        const direct::Job job = job_of(test, mine, rank, seed);
        launch(test.shape, job);
        wrong[static_cast<std::size_t>(rank)] += wrong_bytes(mine.target.data(), bytes, data_of(test), seed);
      }
    });
  }
  for (std::thread& host : hosts) host.join();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(wrong[rank], 0U) << "rank " << rank << " of " << test.shape.ranks << ", mode " << test.mode << ", "
                               << test.elements << " elements of type " << test.datatype << ", op " << test.op
                               << (test.in_place ? ", in place" : "");
    EXPECT_EQ(ranks[rank]->failure[0], 0U);
  }
}

constexpr u32 kModes[] = {direct::kOneShot, direct::kTwoShotPull, direct::kTwoShotPush};

TEST(Direct, EveryModeSizeAndGridIsRight) {
  for (const u32 mode : kModes) {
    for (const Shape& shape : {Shape{2, 1, 1}, Shape{2, 3, 2}, Shape{3, 2, 3}, Shape{4, 2, 2}, Shape{5, 1, 4}}) {
      for (const std::size_t elements : {1U, 3U, 4U, 5U, 21U, 64U, 1001U}) {
        if (kFewRanks && (elements == 3 || elements == 4 || elements == 64)) continue;
        expect_right({shape, mode, elements}, 3);
      }
    }
  }
}

TEST(Direct, InPlaceIsRightInTwoShot) {
  for (const u32 mode : {direct::kTwoShotPull, direct::kTwoShotPush}) {
    for (const std::size_t elements : {1U, 5U, 64U, 777U}) {
      Case test{{3, 2, 2}, mode, elements};
      test.in_place = true;
      expect_right(test, 4);
    }
  }
}

TEST(Direct, EveryDatatypeAndOpIsRight) {
  for (u32 datatype = 0; datatype < 12; ++datatype) {
    for (u32 op = 0; op < 5; ++op) {
      const int ranks = 4;  // a power of two: the average is then exact
      expect_right({{ranks, 2, 1}, kModes[(datatype + op) % 3], 77, datatype, op}, 1);
    }
  }
}

TEST(Direct, ManyOperationsInARowStayInStep) {
  for (const u32 mode : kModes) expect_right({{3, 2, 2}, mode, 100}, 40);
}

TEST(Direct, PartsCoverTheBufferInUnits) {
  for (const u64 bytes : {0U, 1U, 15U, 16U, 17U, 48U, 1000U, 4096U}) {
    for (int ranks = 1; ranks <= direct::kMostRanks; ++ranks) {
      u64 next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const direct::Part part = direct::part_of(bytes, ranks, rank);
        EXPECT_EQ(part.offset, next);
        if (part.bytes > 0) {
          EXPECT_EQ(part.offset % direct::kUnit, 0U);
        }
        next += part.bytes;
      }
      EXPECT_EQ(next, bytes);
    }
  }
}

TEST(Direct, FlagsOfDifferentBlocksAndPeersNeverMeet) {
  std::vector<u64> seen;
  for (u64 block = 0; block < 40; ++block) {
    for (int rank = 0; rank < direct::kMostRanks; ++rank) seen.push_back(direct::flag_of(block, rank));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  EXPECT_GT(seen.front(), direct::kGivenUp);
  EXPECT_LT(seen.back(), direct::flag_words(40));
}

TEST(Direct, FailuresSayWhatWasMissing) {
  const direct::Failure failure = direct::failure_of(direct::failure_word({123456, 3, 15, 4095}));
  EXPECT_EQ(failure.epoch, 123456U);
  EXPECT_EQ(failure.meeting, 3U);
  EXPECT_EQ(failure.peer, 15);
  EXPECT_EQ(failure.block, 4095U);
}

// A rank that never launches: the others leave in a bounded time, and say who was missing where.
TEST(Direct, ARankThatNeverComesEndsTheWait) {
  for (const u32 mode : kModes) {
    Case test{{3, 4, 2}, mode, 500};
    test.patience_ns = 500'000'000;
    const std::vector<std::unique_ptr<Rank>> ranks = ranks_of(test);
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> hosts;
    for (int rank = 0; rank < 2; ++rank) {
      hosts.emplace_back([&, rank] {
        // A later operation of the same rank, queued behind, gives up too, and at once.
        for (u64 epoch = 7; epoch < 9; ++epoch) {
          const direct::Job job = job_of(test, *ranks[static_cast<std::size_t>(rank)], rank, epoch);
          launch(test.shape, job);
        }
      });
    }
    for (std::thread& host : hosts) host.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ASSERT_NE(ranks[rank]->failure[0], 0U);
      const direct::Failure failure = direct::failure_of(ranks[rank]->failure[0]);
      EXPECT_EQ(failure.epoch, 7U);
      EXPECT_EQ(failure.meeting, 1U);
      EXPECT_EQ(failure.peer, 2);
      EXPECT_LT(failure.block, 4U);
    }
  }
}

// The host's word ends the wait long before the patience does.
TEST(Direct, TheHostCanEndTheWait) {
  const Case test{{2, 2, 2}, direct::kOneShot, 64};
  const std::vector<std::unique_ptr<Rank>> ranks = ranks_of(test);
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic_ref<u64>(ranks[0]->failure[1]).store(1);
  });
  launch(test.shape, job_of(test, *ranks[0], 0, 1));
  host.join();
  EXPECT_NE(ranks[0]->failure[0], 0U);
}

// A rank that leaves in the middle, between two meetings.
TEST(Direct, ARankThatLeavesInTheMiddleIsNamed) {
  Case test{{2, 1, 1}, direct::kTwoShotPull, 64};
  test.patience_ns = 50'000'000;
  const std::vector<std::unique_ptr<Rank>> ranks = ranks_of(test);
  ranks[0]->flags[direct::flag_of(0, 1)] = 1;  // rank 1 has come to the first meeting, and to no other
  const direct::Job job = job_of(test, *ranks[0], 0, 1);
  launch(test.shape, job);
  const direct::Failure failure = direct::failure_of(ranks[0]->failure[0]);
  EXPECT_EQ(failure.meeting, 2U);
  EXPECT_EQ(failure.peer, 1);
}

}  // namespace
}  // namespace linkgauge
