// The meetings of ranks: as threads, as processes, and as processes that pretend to be on several nodes.
#include "group/group.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/errors.h"
#include "base/now.h"
#include "base/waiting.h"
#include "fewer.h"
#include "group/agreement.h"
#include "group/clock_line.h"
#include "measure/clock.h"
#include "on_threads.h"
#include "processes.h"
#include "processor_time.h"

namespace linkgauge {
namespace {

// A process of its own, since who spares quota does so for good. A rank waits for another, as it does before each
// sample: spinning, or driving a library meanwhile. What it works itself is little of what it waits, whoever else runs.
TEST(Group, WaitsOfRanksWithLessThanACoreOfQuotaAreAsleep) {
  const auto waits_asleep = [] {
    spare_quota();
    const auto groups = make_thread_groups(2);
    std::array<std::int64_t, 2> worked{};
    std::array<std::int64_t, 2> waited{};
    std::thread late([&] {
      for (int turn = 0; turn < 2; ++turn) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        groups[1]->barrier({});
      }
    });
    for (std::size_t turn = 0; turn < 2; ++turn) {
      const Progress progress = turn == 0 ? Progress{} : Progress{[] {}};
      const std::int64_t begin_ns = now_ns();
      const std::int64_t begin_cpu_ns = cpu_ns_of_this_thread();
      groups[0]->barrier(progress);
      worked[turn] = cpu_ns_of_this_thread() - begin_cpu_ns;
      waited[turn] = now_ns() - begin_ns;
    }
    late.join();
    for (std::size_t turn = 0; turn < 2; ++turn) {
      if (worked[turn] > waited[turn] / 2) std::exit(1);
    }
    std::exit(0);
  };
  EXPECT_EXIT(waits_asleep(), ::testing::ExitedWithCode(0), "");
}

std::vector<std::byte> message_of(int rank, std::size_t bytes) {
  std::vector<std::byte> message(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    message[i] = static_cast<std::byte>((static_cast<std::size_t>(rank) * 31 + i) % 251);
  return message;
}

// What must hold of every group, whatever connects its ranks. Uses only return values, so that a process can report.
void expect_group_works(Group& group) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
  };
  for (int round = 0; round < 30; ++round) group.barrier({});
  group.barrier({}, Waiting::kSleep);
  for (int refuser = -1; refuser < group.size(); ++refuser) {
    require(group.agree(refuser != group.rank(), {}) == (refuser == -1), "agree");
  }
  // Sizes below, at and above one round's slot, and none at all.
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{16384}, std::size_t{50001}}) {
    const auto mine_bytes = [&](int rank) { return bytes * static_cast<std::size_t>(rank + 1); };
    const auto all = group.exchange(message_of(group.rank(), mine_bytes(group.rank())), {});
    require(static_cast<int>(all.size()) == group.size(), "exchange's count");
    for (int rank = 0; rank < group.size(); ++rank) {
      require(all[static_cast<std::size_t>(rank)] == message_of(rank, mine_bytes(rank)), "exchange's bytes");
    }
  }
  // Numbers below, at and above one round's, negative ones too; again and again, so that none is left of the last time.
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{128}, std::size_t{129}, std::size_t{5}}) {
    for (int sign : {1, -1}) {
      const auto told = [&](int rank, std::size_t i) {
        return sign * static_cast<std::int64_t>((i + static_cast<std::size_t>(rank)) % 7) +
               static_cast<std::int64_t>(i);
      };
      std::vector<std::int64_t> numbers;
      for (std::size_t i = 0; i < count; ++i) numbers.push_back(told(group.rank(), i));
      group.largest(numbers, {});
      for (std::size_t i = 0; i < count; ++i) {
        std::int64_t expected = told(0, i);
        for (int rank = 1; rank < group.size(); ++rank) expected = std::max(expected, told(rank, i));
        require(numbers[i] == expected, "largest");
      }
    }
  }
  require(group.largest_of(INT64_MIN, {}) == INT64_MIN, "the largest of the least numbers");
  Group& here = group.on_node();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{16384}, std::size_t{50001}}) {
    for (int silent = -1; silent < here.size(); ++silent) {  // ragged: one rank has nothing to say
      const auto said = [&](int rank) { return message_of(rank, rank == silent ? 0 : bytes * (rank % 3 + 1)); };
      std::vector<std::byte> expected;
      std::vector<std::byte> taken;
      for (int rank = 0; rank < here.size(); ++rank) {
        const std::vector<std::byte> one = said(rank);
        expected.insert(expected.end(), one.begin(), one.end());
      }
      bool bounded = true;
      here.gather(said(here.rank()), [&](std::span<const std::byte> piece) {
        bounded = bounded && piece.size() <= Group::kGatherPieceBytes;
        taken.insert(taken.end(), piece.begin(), piece.end());
      });
      require(bounded, "gather's pieces");
      require(here.rank() == 0 ? taken == expected : taken.empty(), "gather's bytes");
    }
  }
  for (int i = 0; i < 5; ++i) {
    const std::int64_t scheduled_ns = group.align(50'000, 0, {});
    require(now_ns() >= scheduled_ns, "align returned before its deadline");
    const std::int64_t skewed_ns = group.align(50'000, 100'000 * group.rank(), {});
    require(now_ns() >= skewed_ns + 100'000 * group.rank(), "align returned before its own skew");
    std::vector<std::byte> bytes(sizeof skewed_ns);
    std::memcpy(bytes.data(), &skewed_ns, sizeof skewed_ns);
    if (group.node_count() > 1) continue;
    for (const auto& other : group.exchange(bytes, {})) require(other == bytes, "ranks agreed on different deadlines");
  }
}

void expect_subsets_work(Group& group) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
  };
  for (int first = 0; first < group.size(); ++first) {
    for (int second = first + 1; second < group.size(); ++second) {
      const std::unique_ptr<Group> pair = group.subset({first, second});
      const bool member = group.rank() == first || group.rank() == second;
      require((pair != nullptr) == member, "who is a member");
      if (pair) {
        require(pair->size() == 2 && pair->rank() == (group.rank() == second ? 1 : 0), "rank in the subset");
        expect_group_works(*pair);
        if (auto* flag = pair->flag(0, 1, 2)) {
          require(flag->load() == 0 || pair->rank() == 1, "a subset's flags start at 0");
          if (pair->rank() == 0) flag->store(7);
          pair->barrier({});
          require(flag->load() == 7, "a flag is seen by its pair");
        }
        const std::unique_ptr<Group> alone = pair->subset({1});
        require((alone != nullptr) == (pair->rank() == 1), "a subset of a subset");
        if (alone) expect_group_works(*alone);
      }
      group.barrier({}, Waiting::kSleep);
    }
  }
}

// A tmpfs of its own for a scope; not there where nobody may mount one.
class SmallMemory {
 public:
  explicit SmallMemory(std::size_t bytes) {
    std::string name = "/tmp/linkgauge-small-XXXXXX";
    folder_ = mkdtemp(name.data());
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = mount("tmpfs", folder_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallMemory() {
    if (mounted_) umount(folder_.c_str());
    std::filesystem::remove_all(folder_);
  }
  SmallMemory(const SmallMemory&) = delete;
  SmallMemory& operator=(const SmallMemory&) = delete;
  bool mounted() const { return mounted_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  bool mounted_;
};

// Room for the launch's group and not for another: each rank learns it, none dies of it, none waits for one that left.
TEST(ProcessGroup, NoMemoryForASubsetIsAnErrorOnEveryRank) {
  const SmallMemory memory(std::size_t{640} << 10);
  if (!memory.mounted()) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  Processes processes({0, 0, 0}, memory.folder());
  const std::vector<int> statuses = processes.run([](Group& group) {
    std::vector<std::unique_ptr<Group>> kept;
    for (int turn = 0; turn < 8; ++turn) {
      try {
        kept.push_back(group.subset({0, 2}));
      } catch (const MemoryError&) {
        kept.clear();
        group.barrier({});
        return;
      }
    }
    throw std::runtime_error("there was memory for everything");
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, 0}));
}

TEST(ProcessGroup, NoMemoryForTheLaunchIsAnError) {
  const SmallMemory memory(std::size_t{24} << 10);
  if (!memory.mounted()) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  Processes processes({0}, memory.folder());
  EXPECT_EQ(processes.run([](Group& group) {
    for (int i = 0; i < 3; ++i) (void)group.exchange(message_of(0, 50'000), {});
  }),
            std::vector<int>{1});
}

// Of two nodes one has no memory for a group of both: the ranks of the other, and those that are no members, learn why
// and wait for nobody.
TEST(ProcessGroup, NoMemoryForASubsetOnOneNodeIsAnErrorOnEveryNode) {
  for (const int poor : {0, 1}) {
    Processes processes({0, 0, 1, 1, 2});
    const std::vector<int> statuses = processes.run([poor](Group& group) {
      {
        std::optional<MemoryForGroups> none;
        if (group.node() == poor) none.emplace(0);
        group.barrier({});
        try {
          (void)group.subset({0, 1, 3});
          throw std::runtime_error("there is no memory for it");
        } catch (const MemoryError& error) {
          const std::string words = error.what();
          const bool first = words.find("rank " + std::to_string(2 * poor) + ": ") == 0;
          if (!first || words.find("no shared memory") == std::string::npos) throw std::runtime_error(words);
        }
      }
      group.barrier({});
      const std::unique_ptr<Group> all = group.subset({0, 1, 2, 3, 4});
      expect_group_works(*all);
    });
    EXPECT_EQ(statuses, std::vector<int>(5, 0)) << "node " << poor;
  }
}

class ThreadGroupSizes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadGroupSizes, testing::Values(1, 2, 3, 5));

TEST_P(ThreadGroupSizes, MeetsAgreesExchangesAndAligns) { on_threads(GetParam(), expect_group_works); }
TEST_P(ThreadGroupSizes, SubsetsAreGroups) { on_threads(GetParam(), expect_subsets_work); }

TEST(ThreadGroup, BarrierOrdersPlainWrites) {
  constexpr int kRanks = 4;
  std::vector<int> plain(kRanks, 0);
  on_threads(kRanks, [&](Group& group) {
    for (int round = 1; round <= 100; ++round) {
      plain[static_cast<std::size_t>(group.rank())] = round;
      group.barrier({});
      for (const int value : plain) EXPECT_EQ(value, round);
      group.barrier({}, round % 2 == 0 ? Waiting::kSleep : Waiting::kSpin);
    }
  });
}

TEST(ThreadGroup, ProgressIsCalledWhileWaiting) {
  std::atomic<bool> helped{false};
  on_threads(2, [&](Group& group) {
    if (group.rank() == 0) {
      group.barrier([&] { helped = true; });
    } else {
      while (!helped) std::this_thread::yield();  // arrives only once rank 0's wait has called its progress
      group.barrier({});
    }
  });
  EXPECT_TRUE(helped);
}

TEST(ThreadGroup, AbortReachesEveryWait) {
  for (const Waiting waiting : {Waiting::kSpin, Waiting::kSleep}) {
    std::atomic<int> told{0};
    on_threads(3, [&](Group& group) {
      if (group.rank() == 1) {
        group.abort_with("the cable is out");
        return;
      }
      try {
        group.barrier({}, waiting);
        ADD_FAILURE() << "the barrier must not be passed";
      } catch (const PeerError& error) {
        EXPECT_STREQ(error.what(), "rank 1 failed: the cable is out");
        EXPECT_TRUE(group.aborted());
        ++told;
      }
      EXPECT_THROW(group.agree(true, {}), PeerError);
      EXPECT_THROW(group.exchange({}, {}), PeerError);
      EXPECT_THROW(group.align(0, 0, {}), PeerError);
    });
    EXPECT_EQ(told, 2);
  }
}

// Waits outside of the group look at aborted(): they give the reason too, not only that there is one.
TEST(ThreadGroup, AWaitForAFlagSaysWhoFailedAndWhy) {
  on_threads(3, [](Group& group) {
    EXPECT_EQ(group.failure(), "");
    group.barrier({});
    if (group.rank() == 1) return group.abort_with("the cable is out");
    try {
      wait_for_flag(*group.flag(1, group.rank(), 0), 1, group, {});
      ADD_FAILURE() << "nobody raises the flag";
    } catch (const PeerError& error) {
      EXPECT_STREQ(error.what(), "rank 1 failed: the cable is out");
      group.abort_with(error);  // passed on, it stays as it is
    }
    EXPECT_EQ(group.failure(), "rank 1 failed: the cable is out");
  });
}

TEST(ThreadGroup, TheFirstFailureIsTheReason) {
  on_threads(2, [](Group& group) {
    if (group.rank() == 1) {
      group.abort_with("first");
      group.abort_with("second");
    }
    try {
      while (true) group.barrier({});
    } catch (const PeerError& error) {
      EXPECT_STREQ(error.what(), "rank 1 failed: first");
    }
  });
}

TEST(ThreadGroup, AnAbortedSubsetLeavesItsParentUsable) {
  on_threads(3, [](Group& group) {
    const auto pair = group.subset({0, 2});
    if (pair) {
      if (pair->rank() == 0) pair->abort_with("this case failed");
      EXPECT_THROW(pair->barrier({}), PeerError);
    }
    expect_group_works(group);
  });
}

TEST(ThreadGroup, ASubsetKeepsTheOrderOfItsList) {
  on_threads(3, [](Group& group) {
    const auto pair = group.subset({2, 0});
    EXPECT_EQ(pair != nullptr, group.rank() != 1);
    if (!pair) return;
    EXPECT_EQ(pair->rank(), group.rank() == 2 ? 0 : 1);
    const auto all = pair->exchange({static_cast<std::byte>(group.rank())}, {});
    EXPECT_EQ(all[0][0], std::byte{2});
    EXPECT_EQ(all[1][0], std::byte{0});
    expect_group_works(*pair);
  });
}

TEST(ThreadGroup, AFailedGroupPartsTogether) {
  std::atomic<int> came{0};
  on_threads(3, [&](Group& group) {
    if (group.rank() == 0) group.abort_with("gone");
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * group.rank()));
    ++came;
    group.leave();
    EXPECT_EQ(came, 3);
    group.leave();
  });
}

TEST(ThreadGroup, WhatTakingThrowsLeavesTheGroupUsable) {
  on_threads(3, [](Group& group) {
    const std::vector<std::byte> mine(100'000);
    const auto refuse = [](std::span<const std::byte>) { throw CallerError("no room"); };
    if (group.rank() == 0) {
      EXPECT_THROW(group.gather(mine, refuse), CallerError);
    } else {
      group.gather(mine, refuse);
    }
    EXPECT_TRUE(group.agree(true, {}));
  });
}

TEST(ThreadGroup, WrongSubsetsAreNamed) {
  on_threads(2, [](Group& group) {
    EXPECT_THROW(group.subset({}), CallerError);
    EXPECT_THROW(group.subset({0, 0}), CallerError);
    EXPECT_THROW(group.subset({0, 2}), CallerError);
    EXPECT_THROW(group.flag(0, 2, 0), CallerError);
    EXPECT_THROW(group.flag(0, 1, Group::kFlagChannels), CallerError);
  });
  EXPECT_THROW(make_thread_groups(0), CallerError);
}

TEST(ProcessGroup, MeetsAgreesExchangesAndAligns) {
  Processes processes({0, 0, 0});
  EXPECT_EQ(processes.run([](Group& group) {
    if (group.node_count() != 1 || group.one_process()) throw std::runtime_error("what kind of group");
    expect_group_works(group);
    expect_subsets_work(group);
  }),
            std::vector<int>(3, 0));
  EXPECT_EQ(processes.leftovers(), 0) << "the segment's file must be gone";
}

TEST(ProcessGroup, FolderMayBeOnADisk) {
  Processes processes({0, 0}, std::filesystem::temp_directory_path());
  EXPECT_EQ(processes.run(expect_group_works), std::vector<int>(2, 0));
  EXPECT_EQ(processes.leftovers(), 0);
}

std::int64_t segment_bytes() { return static_cast<std::int64_t>(segment_facts().st_blocks) * 512; }

TEST(ProcessGroup, SharedMemoryOfSubsetsIsGivenBack) {
  Processes processes({0, 0});
  EXPECT_EQ(processes.run([](Group& group) {
    const auto use = [&] {
      const std::unique_ptr<Group> both = group.subset({0, 1});
      both->exchange(message_of(both->rank(), 16'000), {});
      group.barrier({});
    };
    use();
    group.barrier({});
    const std::int64_t before = segment_bytes();
    for (int i = 0; i < 60; ++i) use();
    group.barrier({});
    if (segment_bytes() > 2 * before) throw std::runtime_error("subsets leave memory behind");
  }),
            std::vector<int>(2, 0));
}

TEST(ProcessGroup, AbortReachesOtherProcesses) {
  Processes processes({0, 0, 0});
  const std::vector<int> statuses = processes.run([](Group& group) {
    if (group.rank() == 2) {
      group.abort_with("gone");
      return;
    }
    group.barrier({}, group.rank() == 0 ? Waiting::kSleep : Waiting::kSpin);
  });
  EXPECT_EQ(statuses, (std::vector<int>{3, 3, 0}));
}

TEST(ProcessGroup, SeveralNodesActAsOne) {
  for (const std::vector<int>& nodes :
       {std::vector<int>{5, 2, 5, 2}, std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 2}}) {
    if (kFewRanks && nodes.front() == 0) continue;
    Processes processes(nodes);
    EXPECT_EQ(processes.run([&](Group& group) {
      const int node_count = static_cast<int>(std::set<int>(nodes.begin(), nodes.end()).size());
      if (group.node_count() != node_count) throw std::runtime_error("number of nodes");
      expect_group_works(group);
      expect_subsets_work(group);
      for (int other = 0; other < group.size(); ++other) {
        const bool here = nodes[static_cast<std::size_t>(other)] == nodes[static_cast<std::size_t>(group.rank())];
        if ((group.flag(group.rank(), other, 0) != nullptr) != here) throw std::runtime_error("flags within a node");
      }
    }),
              std::vector<int>(nodes.size(), 0));
  }
}

// What is found must hold of the truth, which each process knows of the others: its own shift of the clock.
TEST(ProcessGroup, ClocksOfNodesAreComparedAndOneDeadlineHolds) {
  for (const std::vector<int>& nodes :
       {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1}, std::vector<int>{3, 1, 2, 0, 4}}) {
    if (kFewRanks && nodes.size() != 4) continue;
    constexpr std::int64_t kSecond = 1'000'000'000;
    // An hour, and less than a microsecond, apart.
    const std::vector<std::int64_t> shifts = {0, 3600 * kSecond + 123'456'789, -7 * kSecond, 400, 86'400 * kSecond};
    Processes processes(nodes);
    processes.shift_clocks(shifts);
    const std::vector<int> statuses = processes.run([&](Group& group) {
      const auto require = [](bool holds, const std::string& what) {
        if (!holds) throw std::runtime_error(what);
      };
      const auto true_offset = [&](int rank) {
        const auto shift = [&](int of) {
          return shifts[static_cast<std::size_t>(nodes[static_cast<std::size_t>(of)])];
        };
        return shift(rank) - shift(0);
      };
      std::vector<int> ranks;
      for (int rank = 0; rank < group.size(); ++rank) ranks.push_back(rank);
      const std::unique_ptr<Group> again = group.subset(ranks);  // a clock that was not compared is, at the first align
      for (Group* one : {&group, again.get()}) {
        for (int round = 0; round < 5; ++round) {
          const std::int64_t scheduled_ns = one->align(100'000, 0, {});
          require(now_ns() >= scheduled_ns, "align returned before its deadline");
          const ClockOffset clock = one->compare_clocks({});
          const std::int64_t wrong_ns = clock.offset_ns - true_offset(one->rank());
          require(std::abs(wrong_ns) <= clock.uncertainty_ns,
                  "off by " + std::to_string(wrong_ns) + " ns, said " + std::to_string(clock.uncertainty_ns));
          require(one->node() != 0 || (clock.offset_ns == 0 && clock.uncertainty_ns == 0), "the first node's own");
          require(clock.uncertainty_ns < kSecond, "an uncertainty that says nothing");
          // One deadline: on each rank's clock, less that clock's true offset, within what was said to be uncertain.
          const std::int64_t common_ns = one->align(100'000, 0, {}) - true_offset(one->rank());
          const std::int64_t mine[] = {common_ns, clock.uncertainty_ns};
          std::vector<std::byte> bytes(sizeof mine);
          std::memcpy(bytes.data(), mine, sizeof mine);
          for (const auto& other : one->exchange(bytes, {})) {
            std::int64_t theirs[2];
            std::memcpy(theirs, other.data(), sizeof theirs);
            require(std::abs(theirs[0] - mine[0]) <= theirs[1] + mine[1], "the deadlines are not one");
          }
        }
      }
    });
    if (std::count(statuses.begin(), statuses.end(), Processes::kNoTimeNamespace) != 0)
      GTEST_SKIP() << "no time namespaces may be made here, which shift a process' clock";
    EXPECT_EQ(statuses, std::vector<int>(nodes.size(), 0));
  }
}

// A clock that drifts by so many parts in a million, compared as in a long case, wrong by all that is uncertain, to one
// side and the other by turns. For as long as the drift was seen, what deadlines go by stays within five times that: a
// drift that is not told apart from it moves the clock by four times at most.
TEST(ClockLine, FollowsAClockThatDrifts) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  constexpr std::int64_t kUncertain = 2'000;
  for (const std::int64_t drift_ppm : {0, 1, -5, 40}) {
    const auto truth = [&](std::int64_t at_ns) { return 77 * kSecond + at_ns / 1'000'000 * drift_ppm; };
    ClockLine line;
    EXPECT_FALSE(line.compared());
    std::int64_t wrong_ns = kUncertain;
    std::int64_t at_ns = 0;
    std::int64_t known_ns = 0;
    for (const std::int64_t age_ns : {kSecond, kSecond, 2 * kSecond, 4 * kSecond, 60 * kSecond, 60 * kSecond}) {
      wrong_ns = -wrong_ns;
      line.found({truth(at_ns) + wrong_ns, kUncertain}, at_ns);
      for (std::int64_t later_ns = at_ns; later_ns <= at_ns + age_ns; later_ns += age_ns / 4) {
        const std::int64_t unseen_ns = std::max<std::int64_t>(later_ns - at_ns - known_ns, 0);
        const std::int64_t most_ns = 5 * kUncertain + unseen_ns / 1'000'000 * std::abs(drift_ppm);
        EXPECT_LE(std::abs(line.offset_ns(later_ns) - truth(later_ns)), most_ns) << drift_ppm << " ppm at " << later_ns;
        const std::int64_t first_ns = later_ns - line.offset_ns(later_ns);
        EXPECT_LE(std::abs(line.here_ns(first_ns) - later_ns), 1) << drift_ppm << " ppm at " << later_ns;
      }
      at_ns += age_ns;
      known_ns = age_ns;
    }
    // A minute after the last comparison, which was a minute after the one before: 2.4 ms by the offset alone.
    EXPECT_LE(std::abs(line.offset_ns(at_ns) - truth(at_ns)), 5 * kUncertain) << drift_ppm << " ppm";
  }
}

TEST(ProcessGroup, AbortCrossesNodes) {
  using Meeting = void (*)(Group&);
  const std::vector<std::pair<const char*, Meeting>> meetings = {
      {"agree", [](Group& group) { group.agree(true, {}); }},
      {"barrier", [](Group& group) { group.barrier({}); }},
      {"largest", [](Group& group) { group.largest_of(3, {}); }},
      {"exchange", [](Group& group) { group.exchange(std::vector<std::byte>(3), {}); }},
      {"align", [](Group& group) { group.align(1000, 0, {}); }},
      {"compare clocks", [](Group& group) { group.compare_clocks({}); }},
  };
  for (const auto& [name, meet] : meetings) {
    for (int failing = 0; failing < 4; ++failing) {  // a node's first rank, and one behind it
      Processes processes({0, 0, 1, 1});
      const std::vector<int> statuses = processes.run([failing, meet = meet](Group& group) {
        group.barrier({});
        if (group.rank() == failing) {
          group.abort_with("gone");
          return;
        }
        try {
          meet(group);
        } catch (const PeerError& error) {
          if (error.what() != "rank " + std::to_string(failing) + " failed: gone")
            throw std::runtime_error(error.what());
          throw;
        }
      });
      std::vector<int> expected(4, 3);
      expected[static_cast<std::size_t>(failing)] = 0;
      EXPECT_EQ(statuses, expected) << "rank " << failing << " failed while others were at " << name;
    }
  }
}

// The first rank of a node learns of its neighbor's failure outside of a meeting, and tells the other node, which
// waits in one.
TEST(ProcessGroup, AFailureSeenInAWaitForAFlagCrossesNodes) {
  Processes processes({0, 0, 1, 1});
  const std::vector<int> statuses = processes.run([](Group& group) {
    group.barrier({});
    if (group.rank() == 3) {
      group.abort_with("gone");
      return;
    }
    try {
      if (group.rank() == 2) wait_for_flag(*group.flag(3, 2, 0), 1, group, {});
      group.barrier({});
    } catch (const PeerError& error) {
      group.abort_with(error);
      if (std::string(error.what()) != "rank 3 failed: gone") throw std::runtime_error(error.what());
      throw;
    }
  });
  EXPECT_EQ(statuses, (std::vector<int>{3, 3, 3, 0}));
}

// A rank that fails begins to tell it in all groups that it is in, the wider or the narrower one first. Those of its
// part may wait in either group, and all of the other part in the wider one: each hears of it, and then all meet again.
TEST(ProcessGroup, AFailureInTwoGroupsReachesRanksThatWaitInEither) {
  constexpr unsigned kPatienceS = 120;
  for (const std::vector<int>& node_of_rank : {std::vector<int>{0, 1, 2, 3}, {0, 0, 1, 1, 2, 2, 3, 3}}) {
    for (const bool wider_first : {true, false}) {
      for (const bool in_part : {true, false}) {
        const int ranks = static_cast<int>(node_of_rank.size());
        Processes processes(node_of_rank);
        const std::vector<int> statuses = processes.run([&](Group& launch) {
          alarm(kPatienceS);  // a rank that nobody tells waits for ever
          std::vector<int> all(static_cast<std::size_t>(ranks));
          std::iota(all.begin(), all.end(), 0);
          const std::unique_ptr<Group> wide = launch.subset(all);
          const auto half = all.begin() + ranks / 2;
          const std::unique_ptr<Group> first = wide->subset({all.begin(), half});
          const std::unique_ptr<Group> second = wide->subset({half, all.end()});
          Group& part = first ? *first : *second;
          std::vector<Group*> groups = {wide.get(), &part};
          if (!wider_first) std::swap(groups.front(), groups.back());
          std::string heard;
          try {
            if (launch.rank() == 0) throw std::runtime_error("the cable is out");
            (first && in_part ? part : *wide).barrier({});
          } catch (const std::exception& error) {
            heard = error.what();
            for (Group* group : groups) group->begin_abort(error);
          }
          part.leave();
          wide->leave();
          if (heard.find("the cable is out") == std::string::npos) throw std::runtime_error("heard: " + heard);
          launch.barrier({});
        });
        EXPECT_EQ(statuses, std::vector<int>(statuses.size(), 0)) << ranks << wider_first << in_part;
      }
    }
  }
}

TEST(ProcessGroup, SeveralNodesNeedALink) {
  ProcessGroupOptions options;
  options.node_of_rank = {0, 1};
  EXPECT_THROW(make_process_group(options), CallerError);
  options.rank = 2;
  EXPECT_THROW(make_process_group(options), CallerError);
}

}  // namespace
}  // namespace linkgauge
