// What MPI_Alltoallv is given where its numbers, of 32 bits, do not count the bytes.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "mpi/library.h"
#include "traffic/schedule.h"

namespace linkgauge {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(AlltoallvCounts, EveryBlockIsWholeAndWhereItBelongs) {
  struct Row {
    std::size_t block;
    int ranks;
    std::size_t unit;
  };
  for (const Row& row : {Row{1, 2, 1}, Row{1333, 4096, 1}, Row{1'000'000, 4096, 1'000'000}, Row{3 * kMiB, 4096, kMiB},
                         Row{(std::size_t{1} << 30) + 1, 2, (std::size_t{1} << 30) + 1}, Row{4096 * kMiB, 3, kMiB}}) {
    const AlltoallvCounts found = alltoallv_counts(row.block, 1, row.ranks);
    EXPECT_EQ(found.unit_bytes, row.unit) << row.block;
    ASSERT_EQ(found.sent.counts.size(), static_cast<std::size_t>(row.ranks));
    for (int peer = 0; peer < row.ranks; ++peer) {
      const auto place = static_cast<std::size_t>(peer);
      const std::size_t bytes = static_cast<std::size_t>(found.sent.counts[place]) * found.unit_bytes;
      ASSERT_EQ(bytes, peer == 1 ? 0 : row.block) << row.block << " of " << row.ranks << ", peer " << peer;
      ASSERT_EQ(static_cast<std::size_t>(found.sent.displacements[place]) * found.unit_bytes, place * row.block);
    }
  }
}

TEST(AlltoallvCounts, AMatrixIsCountedInVectorsWhereBytesAreTooMany) {
  const auto counts = [](std::size_t bytes, const char* rows) {
    return alltoallv_counts(alltoallv_share(
        {.pattern = Pattern::kAlltoallv, .size_bytes = static_cast<std::int64_t>(bytes), .distribution = rows}, 3, 1));
  };
  const AlltoallvCounts few = counts(8, "0,3,1;2,0,1;1,0,9");
  EXPECT_EQ(few.unit_bytes, 1U);
  EXPECT_EQ(few.sent.counts, (std::vector<int>{12, 0, 6}));
  EXPECT_EQ(few.sent.displacements, (std::vector<int>{0, 12, 12}));
  EXPECT_EQ(few.received.counts, (std::vector<int>{18, 0, 0}));
  EXPECT_EQ(few.received.displacements, (std::vector<int>{0, 18, 18}));
  const AlltoallvCounts many = counts(std::size_t{2} << 30, "uniform");
  EXPECT_EQ(many.unit_bytes, 16U);
  EXPECT_EQ(many.sent.counts[2], 1 << 27);
}

TEST(AlltoallvCounts, WhatNoUnitFitsIsRefused) {
  EXPECT_THROW((void)alltoallv_counts((std::size_t{1} << 31) + 5, 0, 2), CallerError);
}

}  // namespace
}  // namespace linkgauge
