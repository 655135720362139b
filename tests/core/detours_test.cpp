// Detours: what is found lies within the look, apart and in order, and none is shorter than asked.
#include "measure/detours.h"

#include <gtest/gtest.h>

#include "measure/clock.h"

namespace linkgauge {
namespace {

TEST(Detours, LieWithinTheLookInOrder) {
  const std::int64_t before = now_ns();
  const Detours found = find_detours(20'000'000, 1'000);
  const std::int64_t after = now_ns();
  ASSERT_EQ(found.start_ns.size(), found.ns.size());
  EXPECT_GE(found.span_ns, 20'000'000);
  EXPECT_GT(found.quantum_ns, 0);
  EXPECT_LT(found.quantum_ns, 1'000);
  std::int64_t end = before;
  std::int64_t lost = 0;
  for (std::size_t i = 0; i < found.ns.size(); ++i) {
    EXPECT_GE(found.start_ns[i], end);
    EXPECT_GE(found.ns[i], 1'000);
    end = found.start_ns[i] + found.ns[i];
    lost += found.ns[i];
  }
  EXPECT_LE(end, after);
  EXPECT_LE(lost, found.span_ns);
}

TEST(Detours, EachReadIsOneWhereTheLeastIsNothingAndTheyEndTheLook) {
  const Detours found = find_detours(10'000'000'000, 0, 1'000);
  EXPECT_EQ(found.ns.size(), 1'000U);
  EXPECT_LT(found.span_ns, 10'000'000'000);
}

}  // namespace
}  // namespace linkgauge
