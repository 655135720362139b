// Each pattern's steps against all of its flows, listed one by one; and replayed: what is sent is received, and what
// must lie where at the end does.
#include "traffic/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "base/errors.h"
#include "base/patterns.h"
#include "traffic/layout.h"

namespace linkgauge {
namespace {

struct Listed {
  int source;
  int target;
  std::size_t source_offset;
  std::size_t target_offset;
  std::size_t bytes;
};
bool operator==(const Listed& a, const Listed& b) {
  return std::tie(a.source, a.target, a.source_offset, a.target_offset, a.bytes) ==
         std::tie(b.source, b.target, b.source_offset, b.target_offset, b.bytes);
}

// All ranks' flows in the order in which they are begun; of what reduces, those of its operands.
std::vector<Listed> listed(const CaseSpec& spec, int n) {
  const auto m = static_cast<std::size_t>(spec.traffic.size_bytes);
  const std::size_t block = block_bytes(spec.traffic, n);
  const auto place = [&](int rank) { return static_cast<std::size_t>(rank) * block; };
  std::vector<Listed> flows;
  const int first = spec.traffic.in_place ? 1 : 0;
  const auto scratch = [&](int shift) { return static_cast<std::size_t>(shift - 1) * block; };
  const int root = spec.traffic.root;
  for (int shift = 0; shift < n; ++shift) {
    const int peer = (root + shift) % n;
    for (int source = 0; source < n; ++source) {
      const int target = (source + shift) % n;
      if (spec.traffic.pattern == Pattern::kRingShift && shift == 1) flows.push_back({source, target, 0, 0, m});
      if (spec.traffic.pattern == Pattern::kAlltoall && shift > 0) {
        flows.push_back({source, target, place(target), place(source), m});
      }
      if (spec.traffic.pattern == Pattern::kAlltoallv &&
          shift > 0) {  // uniform: as alltoall, without room for the own block
        const auto behind = [&](int of, int own) { return place(of) - (of > own ? m : 0); };
        flows.push_back({source, target, behind(target, source), behind(source, target), m});
      }
      if (spec.traffic.pattern == Pattern::kAllgather && shift >= first) {
        flows.push_back({source, target, spec.traffic.in_place ? place(source) : 0, place(source), block});
      }
    }
    for (int to = 0; to < n && shift > 0; ++to) {
      const int from = (to + shift) % n;
      if (spec.traffic.pattern == Pattern::kReduceScatter)
        flows.push_back({from, to, place(to), scratch(shift), block});
      if (spec.traffic.pattern == Pattern::kReduce && to == root) flows.push_back({from, to, 0, scratch(shift), m});
      if (spec.traffic.pattern == Pattern::kAllreduce && to == 0) flows.push_back({from, to, 0, scratch(shift), m});
    }
    if (spec.traffic.pattern == Pattern::kOneToAll && shift > 0) flows.push_back({root, peer, place(peer), 0, m});
    if (spec.traffic.pattern == Pattern::kAllToOne && shift > 0) flows.push_back({peer, root, 0, place(peer), m});
    if (spec.traffic.pattern == Pattern::kBroadcast && shift > 0) flows.push_back({root, peer, 0, 0, m});
    if (spec.traffic.pattern == Pattern::kGather && shift >= first)
      flows.push_back({peer, root, 0, place(peer), block});
    if (spec.traffic.pattern == Pattern::kScatter && shift >= first)
      flows.push_back({root, peer, place(peer), 0, block});
  }
  const std::size_t back = spec.traffic.pattern == Pattern::kBidirectional && n == 1 ? m : 0;
  if (spec.traffic.pattern <= Pattern::kBidirectional) flows.push_back({0, n - 1, 0, 0, m});
  if (spec.traffic.pattern == Pattern::kPingpong || spec.traffic.pattern == Pattern::kBidirectional) {
    flows.push_back({n - 1, 0, back, back, m});
  }
  for (int source = 0; traits_of(spec.traffic.pattern).side_by_side && source < n; source += 2) {
    flows.push_back({source, source + 1, 0, 0, m});
    if (spec.traffic.pattern != Pattern::kPairsUnidirectional) flows.push_back({source + 1, source, 0, 0, m});
  }
  return flows;
}

// Every case that can be of 1 to 9 ranks: odd sizes, each root, in place and out of it.
template <typename Look>
void on_every_case(const Look& look) {
  int cases = 0;
  for (const PatternTraits& row : all_patterns()) {
    if (row.kind == PatternKind::kDevice) continue;
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const bool in_place : {false, true}) {
        for (int root = 0; root < ranks; ++root) {
          CaseSpec spec;
          spec.traffic.pattern = row.pattern;
          spec.traffic.datatype = Datatype::kInt8;
          spec.traffic.size_bytes = traits_of(spec.traffic.pattern).cuts_blocks ? 3 * ranks : 7;
          spec.traffic.root = root;
          spec.traffic.in_place = in_place;
          if (!why_not_laid_out(spec, ranks).empty()) continue;
          SCOPED_TRACE(std::string(to_string(spec.traffic.pattern)) + " of " + std::to_string(ranks) + ", root " +
                       std::to_string(root) + (in_place ? ", in place" : ""));
          look(spec, ranks);
          ++cases;
        }
      }
    }
  }
  EXPECT_GT(cases, 500);
}

TEST(Schedule, EachRankHasItsOwnFlowsAndNoOthersInTheirOrder) {
  on_every_case([](const CaseSpec& spec, int ranks) {
    // Told by properties in distribution_test.cpp and below.
    if (spec.traffic.pattern == Pattern::kHalo || spec.traffic.pattern == Pattern::kBarrier) return;
    const std::vector<Listed> all = listed(spec, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<Listed> expected;
      for (const Listed& flow : all) {
        if (flow.source == rank || flow.target == rank) expected.push_back(flow);
      }
      std::vector<Listed> found;
      for (const Step& step : schedule_of(spec.traffic, ranks, rank).steps) {
        if (step.kind != StepKind::kTransfer || step.stage == 2) continue;
        found.push_back({step.source, step.target, step.source_offset, step.target_offset, step.bytes});
      }
      EXPECT_TRUE(found == expected) << "rank " << rank;
    }
  });
}

// What byte `offset` of a rank's stream stands for: sums of two never meet by chance.
std::uint64_t byte_of(int rank, std::uint64_t offset) {
  std::uint64_t bits = (static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15U + offset * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 31U)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 29U);
}

// The memories of one rank, a number for each byte.
struct Held {
  std::map<StepMemory, std::vector<std::uint64_t>> memory;
  bool one_buffer = false;
  std::vector<std::uint64_t>& at(StepMemory which) {
    return memory[one_buffer && which == StepMemory::kSource ? StepMemory::kTarget : which];
  }
};

std::vector<std::uint64_t> read(Held& held, StepMemory which, std::size_t offset, std::size_t bytes) {
  const std::vector<std::uint64_t>& memory = held.at(which);
  if (offset + bytes > memory.size()) throw std::out_of_range("a step reads beyond its memory");
  const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
}

void write(Held& held, StepMemory which, std::size_t offset, const std::vector<std::uint64_t>& values) {
  std::vector<std::uint64_t>& memory = held.at(which);
  if (offset + values.size() > memory.size()) throw std::out_of_range("a step writes beyond its memory");
  std::copy(values.begin(), values.end(), memory.begin() + static_cast<std::ptrdiff_t>(offset));
}

std::vector<std::uint64_t> reduced(Held& held, const Step& step, std::size_t scratch_bytes) {
  std::vector<std::uint64_t> sum = read(held, step.from, step.source_offset, step.bytes);
  for (std::size_t block = 0; block < scratch_bytes; block += step.bytes) {
    const std::vector<std::uint64_t> operand = read(held, StepMemory::kScratch, block, step.bytes);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += operand[i];
  }
  return sum;
}

TEST(Schedule, ReplayedItLeavesWhatMustBeHeldAtTheEnd) {
  on_every_case([](const CaseSpec& spec, int ranks) {
    std::vector<Schedule> schedules;
    std::vector<Layout> layouts;
    std::vector<Held> held(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      schedules.push_back(schedule_of(spec.traffic, ranks, rank));
      layouts.push_back(layout_of(spec.traffic, ranks, rank));
      Held& own = held[static_cast<std::size_t>(rank)];
      own.one_buffer = layouts.back().one_buffer;
      own.at(StepMemory::kSource).resize(layouts.back().source_bytes);
      own.at(StepMemory::kTarget).resize(std::max(own.at(StepMemory::kTarget).size(), layouts.back().target_bytes));
      own.at(StepMemory::kScratch).resize(schedules.back().scratch_bytes);
      for (const Piece& piece : layouts.back().sent) {
        for (std::size_t i = 0; i < piece.bytes; ++i) {
          own.at(StepMemory::kSource)[piece.offset + i] = byte_of(piece.rank, piece.stream_offset + i);
        }
      }
    }
    // Within a stage nothing waits for anything: all is read before any is written.
    for (int stage = 0; stage <= 4; ++stage) {
      std::map<std::tuple<int, int, std::size_t, std::size_t, std::size_t>, int> sent_less_received;
      std::vector<std::tuple<Held*, const Step*, std::vector<std::uint64_t>>> writes;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto here = static_cast<std::size_t>(rank);
        for (const Step& step : schedules[here].steps) {
          if (step.stage != stage) continue;
          if (step.kind == StepKind::kReduce) {
            writes.emplace_back(&held[here], &step, reduced(held[here], step, schedules[here].scratch_bytes));
            continue;
          }
          const auto key = std::tuple(step.source, step.target, step.source_offset, step.target_offset, step.bytes);
          if (step.target == rank) --sent_less_received[key];
          if (step.source != rank) continue;
          ++sent_less_received[key];
          writes.emplace_back(&held[static_cast<std::size_t>(step.target)], &step,
                              read(held[here], step.from, step.source_offset, step.bytes));
        }
      }
      for (const auto& [key, count] : sent_less_received) EXPECT_EQ(count, 0) << "of " << std::get<0>(key);
      for (const auto& [to, step, values] : writes) write(*to, step->into, step->target_offset, values);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Piece& piece : layouts[static_cast<std::size_t>(rank)].received) {
        for (std::size_t i = 0; i < piece.bytes; ++i) {
          std::uint64_t due = 0;
          for (int one = 0; one < ranks; ++one) {
            if (piece.reduced || one == piece.rank) due += byte_of(one, piece.stream_offset + i);
          }
          if (!piece.reduced && piece.rank >= ranks) due = byte_of(piece.rank, piece.stream_offset + i);
          ASSERT_EQ(held[static_cast<std::size_t>(rank)].at(StepMemory::kTarget)[piece.offset + i], due)
              << "rank " << rank << ", byte " << piece.offset + i;
        }
      }
    }
  });
}

// A rank's share of the work, counted: nothing grows with the square of the ranks.
TEST(Schedule, ARankHoldsItsOwnStepsOnly) {
  constexpr int kRanks = 10'000;
  const auto steps_of = [](Pattern pattern, int rank) {
    return schedule_of({pattern, std::int64_t{8} * kRanks}, kRanks, rank).steps;
  };
  const std::vector<Step> all = steps_of(Pattern::kAlltoall, 4321);
  EXPECT_EQ(all.size(), 2U * (kRanks - 1));
  EXPECT_LE(all.capacity() * sizeof(Step), std::size_t{1} << 20);
  EXPECT_EQ(steps_of(Pattern::kBroadcast, 0).size(), kRanks - 1U);
  EXPECT_EQ(steps_of(Pattern::kBroadcast, 4321).size(), 1U);
  EXPECT_EQ(steps_of(Pattern::kRingShift, 4321).size(), 2U);
  EXPECT_EQ(steps_of(Pattern::kPairsBidirectional, 4321).size(), 2U);
  EXPECT_EQ(steps_of(Pattern::kBarrier, 4321).size(), 2U * 14U);
  EXPECT_EQ(steps_of(Pattern::kHalo, 4321).size(), 2U * 6U);
}

// Who has heard, directly or through others, of whom.
TEST(Schedule, AfterABarrierEachHasHeardOfAll) {
  for (const int ranks : {2, 3, 4, 5, 7, 8, 9, 16, 17}) {
    std::vector<std::vector<bool>> heard(static_cast<std::size_t>(ranks));
    for (std::size_t rank = 0; rank < heard.size(); ++rank) {
      heard[rank].resize(heard.size());
      heard[rank][rank] = true;
    }
    for (const std::uint8_t stage : schedule_of({Pattern::kBarrier, 1}, ranks, 0).transfer_stages) {
      const auto before = heard;
      for (int rank = 0; rank < ranks; ++rank) {
        for (const Step& step : schedule_of({Pattern::kBarrier, 1}, ranks, rank).steps) {
          if (step.stage != stage || step.target != rank) continue;
          for (std::size_t one = 0; one < heard.size(); ++one) {
            if (before[static_cast<std::size_t>(step.source)][one]) heard[static_cast<std::size_t>(rank)][one] = true;
          }
        }
      }
    }
    for (const auto& of_rank : heard) EXPECT_EQ(std::count(of_rank.begin(), of_rank.end(), false), 0) << ranks;
  }
}

TEST(Schedule, PatternsWithinOneDeviceHaveNone) {
  EXPECT_THROW((void)schedule_of({Pattern::kLocalCopy, 8}, 1, 0), CallerError);
}

}  // namespace
}  // namespace linkgauge
