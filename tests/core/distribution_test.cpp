// The traffic matrix of an alltoallv and the neighbors of a halo exchange, by what must hold of all ranks' shares.
#include "traffic/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/errors.h"

namespace linkgauge {
namespace {

Traffic traffic(Pattern pattern, std::size_t bytes, const std::string& distribution) {
  return {.pattern = pattern, .size_bytes = static_cast<std::int64_t>(bytes), .distribution = distribution};
}

// Bytes from each to each; checked on the way: both ends agree, and no two blocks of a buffer overlap.
std::vector<std::vector<std::size_t>> matrix(int ranks, std::size_t bytes, const std::string& distribution) {
  EXPECT_EQ(why_not_distributed(Pattern::kAlltoallv, distribution, ranks), "");
  std::vector<AlltoallvShare> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    shares.push_back(alltoallv_share(traffic(Pattern::kAlltoallv, bytes, distribution), ranks, rank));
  }
  std::vector<std::vector<std::size_t>> sent;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    std::size_t place = 0;
    std::size_t arrival = 0;
    for (std::size_t j = 0; j < shares.size(); ++j) {
      EXPECT_EQ(shares[i].sent[j], shares[j].received[i]);
      EXPECT_EQ(shares[i].sent_at[j], place);
      EXPECT_EQ(shares[i].sent_at[j], shares[j].leaves_from[i]);
      EXPECT_EQ(shares[i].received_at[j], arrival);
      EXPECT_EQ(shares[i].received_at[j], shares[j].arrives_at[i]);
      place += shares[i].sent[j];
      arrival += shares[i].received[j];
    }
    EXPECT_EQ(place, shares[i].source_bytes);
    EXPECT_EQ(arrival, shares[i].target_bytes);
    EXPECT_EQ(shares[i].sent[i], 0U);
    sent.push_back(shares[i].sent);
  }
  std::size_t all = 0;
  for (const auto& row : sent) all = std::accumulate(row.begin(), row.end(), all);
  const auto n = static_cast<std::size_t>(ranks);
  EXPECT_EQ(all, n * (n - 1) * bytes) << distribution;
  return sent;
}

using Matrix = std::vector<std::vector<std::size_t>>;

TEST(Alltoallv, RowsAreCutInTheirRatio) {
  EXPECT_EQ(matrix(3, 8, "0,3,1;2,0,1;1,0,9"),
            (Matrix{{0, 18, 6}, {12, 0, 6}, {6, 0, 0}}));  // the diagonal is not sent
  EXPECT_EQ(matrix(2, 7, "0,1;0,0"), (Matrix{{0, 14}, {0, 0}}));
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1333}, std::size_t{1} << 30}) {
    for (const int ranks : {2, 3, 7}) {
      for (const auto& row : matrix(ranks, bytes, "uniform")) {
        for (const std::size_t one : row) EXPECT_TRUE(one == 0 || one == bytes);
      }
    }
  }
}

TEST(Alltoallv, NoBlockIsFarFromItsShare) {
  const auto found = matrix(16, 1600, "zipf:1.5");
  double whole = 0;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) whole += i == j ? 0 : std::pow(j + 1, -1.5);
  }
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 16; ++j) {
      if (i == j) continue;
      EXPECT_NEAR(static_cast<double>(found[i][j]), 16 * 15 * 1600 * std::pow(j + 1, -1.5) / whole, 16.1);
      EXPECT_EQ(found[i][j] % 16, 0U);
    }
  }
}

TEST(Alltoallv, BlocksKeepToThemselves) {
  const auto found = matrix(7, 96, "blocks:3");
  for (std::size_t i = 0; i < 7; ++i) {
    for (std::size_t j = 0; j < 7; ++j) EXPECT_EQ(found[i][j] != 0, i != j && i / 3 == j / 3) << i << " " << j;
  }
}

TEST(Alltoallv, TokensGoToTheRanksOfTheirExperts) {
  // All experts chosen: each token goes to every rank.
  for (const auto& row : matrix(4, 64, "moe:8:8:10")) {
    EXPECT_EQ(std::count(row.begin(), row.end(), 64), 3);
  }
  // Popular experts lie on the first ranks.
  const auto even = matrix(8, 1 << 20, "moe:64:8:4096");
  const auto skewed = matrix(8, 1 << 20, "moe:64:8:4096:1.2");
  const auto into = [](const Matrix& all, std::size_t target) {
    return std::accumulate(all.begin(), all.end(), 0.0,
                           [&](double sum, const auto& row) { return sum + static_cast<double>(row[target]); });
  };
  EXPECT_NEAR(into(even, 0) / into(even, 7), 1.0, 0.05);
  EXPECT_GT(into(skewed, 0) / into(skewed, 7), 1.3);
  EXPECT_EQ(matrix(8, 1 << 20, "moe:64:8:4096:0:1"), even);
  EXPECT_NE(matrix(8, 1 << 20, "moe:64:8:4096:0:2"), even);
}

TEST(Distribution, WhatIsNoneIsRefusedByItsWords) {
  for (const char* wrong : {"zipf", "zipf:-1", "zipf:nan", "zipf:1:2", "blocks:1", "blocks:5", "moe:3:1", "moe:8:9",
                            "moe:8:0", "moe:8", "0,1;1", "0,1,1,1;1,0,1,1;1,1,0,1;1,1,1,x", "2x2", "x"}) {
    const std::string reason = why_not_distributed(Pattern::kAlltoallv, wrong, 4);
    EXPECT_NE(reason.find(std::string("'") + wrong + "' is none of alltoallv over 4 ranks; expected uniform"),
              std::string::npos)
        << wrong << ": " << reason;
    EXPECT_THROW((void)alltoallv_share(traffic(Pattern::kAlltoallv, 8, wrong), 4, 0), CallerError);
  }
  EXPECT_NE(why_not_distributed(Pattern::kAlltoallv, "5,0;0,5", 2).find("sends nothing"), std::string::npos);
  for (const char* wrong : {"3x2", "2x2x2", "2x2:closed", "2:2", "2x2:2x2", "x", "2x", "0x4", "1x1x1x1x4x", ":",
                            "shift:0", "shift:4", "shift:", "shift:1:open"}) {
    EXPECT_NE(why_not_distributed(Pattern::kHalo, wrong, 4).find("expected a grid"), std::string::npos) << wrong;
  }
  EXPECT_NE(why_not_distributed(Pattern::kAlltoall, "zipf:1", 4), "");
}

// ----- halo

using Edge = std::tuple<int, int, std::size_t>;  // from, to, bytes

std::multiset<Edge> edges(int ranks, std::size_t bytes, const std::string& distribution) {
  EXPECT_EQ(why_not_distributed(Pattern::kHalo, distribution, ranks), "") << distribution;
  std::multiset<Edge> sent;
  std::multiset<Edge> received;
  for (int rank = 0; rank < ranks; ++rank) {
    const HaloShare share = halo_share(traffic(Pattern::kHalo, bytes, distribution), ranks, rank);
    std::size_t place = 0;
    for (const HaloMessage& message : share.sent) {
      EXPECT_EQ(message.own_at, place);
      place += message.bytes;
      if (message.peer >= 0) sent.emplace(rank, message.peer, message.bytes);
    }
    EXPECT_EQ(place, share.buffer_bytes);
    for (const HaloMessage& message : share.received) {
      if (message.peer >= 0) received.emplace(message.peer, rank, message.bytes);
    }
  }
  EXPECT_EQ(sent, received);
  std::multiset<Edge> listed;
  each_pair(traffic(Pattern::kHalo, bytes, distribution), ranks,
            [&](int from, int to, std::size_t moved) { listed.emplace(from, to, moved); });
  EXPECT_EQ(listed, sent);
  return sent;
}

TEST(Halo, NeighborsAreThoseOfTheGrid) {
  std::multiset<Edge> expected;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 4; ++column) {
      for (const auto& [down, right] : {std::pair{1, 0}, {-1, 0}, {0, 1}, {0, -1}}) {
        expected.emplace(row * 4 + column, (row + down + 3) % 3 * 4 + (column + right + 4) % 4, 640);
      }
    }
  }
  EXPECT_EQ(edges(12, 640, "3x4"), expected);
  EXPECT_EQ(edges(12, 640, "3x4x1"), expected);  // along a dimension of one rank nothing is sent
  std::multiset<Edge> open;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank > 0) open.emplace(rank, rank - 1, 9);
    if (rank < 3) open.emplace(rank, rank + 1, 9);
  }
  EXPECT_EQ(edges(4, 9, "4:open"), open);
  EXPECT_EQ(edges(4, 9, "ring:open"), open);
  EXPECT_EQ(edges(12, 9, "ring"), edges(12, 9, "12"));
}

TEST(Halo, TwoRanksAlongADimensionAreNeighboursTwice) {
  EXPECT_EQ(edges(2, 5, ""), (std::multiset<Edge>{{0, 1, 5}, {0, 1, 5}, {1, 0, 5}, {1, 0, 5}}));
  EXPECT_EQ(edges(2, 5, "open"), (std::multiset<Edge>{{0, 1, 5}, {1, 0, 5}}));
}

TEST(Halo, ShiftsTogetherAreEachOrderedPairOnce) {
  std::multiset<Edge> all;
  for (int places = 1; places < 5; ++places) {
    const std::multiset<Edge> one = edges(5, 77, "shift:" + std::to_string(places));
    EXPECT_EQ(one.size(), 5U);  // each rank sends one message and receives one
    all.insert(one.begin(), one.end());
  }
  std::multiset<Edge> expected;
  for (int from = 0; from < 5; ++from) {
    for (int to = 0; to < 5; ++to) {
      if (from != to) expected.emplace(from, to, 77);
    }
  }
  EXPECT_EQ(all, expected);
}

TEST(Halo, EdgesAndCornersAreOfTheSameBox) {
  // 512^3 cells of 8 bytes.
  std::map<std::size_t, int> messages;
  for (const auto& [from, to, bytes] : edges(27, 2 << 20, "3x3x3:all")) messages[bytes] += from == 13 ? 1 : 0;
  EXPECT_EQ(messages, (std::map<std::size_t, int>{{2 << 20, 6}, {4096, 12}, {8, 8}}));
  messages.clear();
  for (const auto& [from, to, bytes] : edges(9, 4096, "3x3:all:open")) messages[bytes] += from == 4 ? 1 : 0;
  EXPECT_EQ(messages, (std::map<std::size_t, int>{{4096, 4}, {8, 4}}));
  for (const auto& [from, to, bytes] : edges(27, 3, "all")) EXPECT_EQ(bytes, 3U);  // no more than the face
}

// All boxes together are one field of cells, each with a number of its own: after the exchange a cell around a box
// holds the number of the cell that lies there, by its place in the whole.
class WholeField {
 public:
  WholeField(std::vector<std::size_t> grid, std::size_t side, bool open)
      : grid_(std::move(grid)), side_(side), open_(open), extent_(side + 2) {
    for (const std::size_t ranks : grid_) ranks_ *= ranks;
  }
  int ranks() const { return static_cast<int>(ranks_); }
  std::size_t cells() const { return grid_.size() == 2 ? extent_ * extent_ : extent_ * extent_ * extent_; }

  // What the cell of a rank's field holds: its number if `whose` says so by how many dimensions it lies outside of the
  // box along; else 0. Beyond an open boundary there is none.
  template <typename Whose>
  std::uint64_t at(int rank, std::size_t cell, const Whose& whose) const {
    std::uint64_t number = 0;
    int outside = 0;
    auto rest = static_cast<std::size_t>(rank);
    std::vector<std::size_t> places(grid_.size());
    for (std::size_t d = grid_.size(); d-- > 0; rest /= grid_[d]) places[d] = rest % grid_[d];
    std::vector<std::size_t> within(grid_.size());
    for (std::size_t d = grid_.size(); d-- > 0; cell /= extent_) within[d] = cell % extent_;
    for (std::size_t d = 0; d < grid_.size(); ++d) {
      const std::size_t length = grid_[d] * side_;
      const std::size_t place = places[d] * side_ + within[d];  // one too many
      const bool out = within[d] == 0 || within[d] == side_ + 1;
      if (out && (grid_[d] == 1 || (open_ && (place == 0 || place == length + 1)))) return 0;
      outside += out ? 1 : 0;
      number = number * length + (place + length - 1) % length;
    }
    return whose(outside) ? number + 1 : 0;
  }

 private:
  std::vector<std::size_t> grid_;
  std::size_t side_;
  bool open_;
  std::size_t extent_;
  std::size_t ranks_ = 1;
};

TEST(Halo, InAFieldOfCellsEachComesToLieWhereItLiesInTheWhole) {
  struct Asked {
    std::string distribution;
    std::vector<std::size_t> grid;  // the field's dimensions: of one dimension the last of three
    std::size_t side;
  };
  for (const Asked& asked :
       {Asked{"2x2x2", {2, 2, 2}, 4}, Asked{"3x2x2", {3, 2, 2}, 1}, Asked{"2x3x2:all", {2, 3, 2}, 3},
        Asked{"2x2x3:all:open", {2, 2, 3}, 2}, Asked{"3x2", {3, 2}, 5}, Asked{"2x2:all", {2, 2}, 4},
        Asked{"2x3:open", {2, 3}, 3}, Asked{"ring", {1, 1, 3}, 4}, Asked{"ring:open", {1, 1, 2}, 3}}) {
    const bool all = asked.distribution.find("all") != std::string::npos;
    const WholeField whole(asked.grid, asked.side, asked.distribution.find("open") != std::string::npos);
    const std::size_t face = 8 * asked.side * (asked.grid.size() == 2 ? 1 : asked.side);
    const Traffic halo = traffic(Pattern::kHalo, face, asked.distribution);
    ASSERT_EQ(why_no_halo_field(halo, whole.ranks()), "") << asked.distribution;
    for (int rank = 0; rank < whole.ranks(); ++rank) {
      const HaloField field = halo_field(halo, whole.ranks(), rank);
      const HaloShare packed = halo_share(halo, whole.ranks(), rank);
      ASSERT_EQ(field.buffer_bytes, 8 * whole.cells());
      std::vector<std::uint64_t> arrived(whole.cells());
      for (std::size_t k = 0; k < field.received.size(); ++k) {
        const HaloRegionMessage& message = field.received[k];
        EXPECT_EQ(message.peer, packed.received[k].peer);
        EXPECT_EQ(field.sent[k].peer, packed.sent[k].peer);
        std::size_t bytes = 0;
        each_run(message, [&](std::size_t own_at, std::size_t peer_at, std::size_t run) {
          for (std::size_t i = 0; i < run / 8 && message.peer >= 0; ++i) {
            EXPECT_EQ(arrived[own_at / 8 + i], 0U) << "twice";
            arrived[own_at / 8 + i] = whole.at(message.peer, peer_at / 8 + i, [](int outside) { return outside == 0; });
          }
          bytes += run;
        });
        EXPECT_EQ(bytes, packed.received[k].bytes);
      }
      for (std::size_t cell = 0; cell < whole.cells(); ++cell) {
        const auto around = [&](int outside) { return outside == 1 || (all && outside > 1); };
        ASSERT_EQ(arrived[cell], whole.at(rank, cell, around)) << asked.distribution << " " << rank << " " << cell;
      }
    }
  }
}

TEST(Halo, AFaceThatNoBoxHasIsRefusedWithTheNearest) {
  EXPECT_NE(why_no_halo_field(traffic(Pattern::kHalo, 4096, "2x2x2"), 8).find("nearest size is 3872"),
            std::string::npos);
  EXPECT_EQ(why_no_halo_field(traffic(Pattern::kHalo, 8192, "2x2x2"), 8), "");
  EXPECT_NE(why_no_halo_field(traffic(Pattern::kHalo, 12, "2x2"), 4).find("multiple of 8"), std::string::npos);
  EXPECT_NE(why_no_halo_field(traffic(Pattern::kHalo, std::size_t{1} << 40, "2x2"), 4), "");
  EXPECT_NE(why_no_halo_field(traffic(Pattern::kHalo, 8192, "shift:1"), 4).find("shift"), std::string::npos);
  EXPECT_THROW((void)halo_field(traffic(Pattern::kHalo, 4096, "2x2x2"), 8, 0), CallerError);
}

TEST(Halo, WithoutAGridItIsAsEvenAsCanBe) {
  EXPECT_EQ(edges(12, 1, ""), edges(12, 1, "3x2x2"));
  EXPECT_EQ(edges(64, 1, ""), edges(64, 1, "4x4x4"));
  EXPECT_EQ(edges(7, 1, ""), edges(7, 1, "7"));
  EXPECT_EQ(edges(6, 1, ""), edges(6, 1, "3x2"));
  EXPECT_EQ(edges(16, 1, ""), edges(16, 1, "4x2x2"));
}

}  // namespace
}  // namespace linkgauge
