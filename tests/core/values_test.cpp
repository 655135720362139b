// The data patterns against oracles of their own: long double and integer arithmetic, and tables of known encodings.
#include "kernels/values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

namespace linkgauge::values {
namespace {

constexpr u32 kDatatypes[] = {kInt8,    kUint8,    kInt32,   kUint32,  kInt64,      kUint64,
                              kFloat16, kBfloat16, kFloat32, kFloat64, kFloat8E4m3, kFloat8E5m2};
constexpr u32 kOps[] = {kSum, kProd, kMin, kMax, kAvg};

// The value of raw bits by the definition of the format, not by the code under test.
long double value_of(u32 datatype, u64 bits) {
  switch (datatype) {
    case kInt8:
      return static_cast<std::int8_t>(bits);
    case kUint8:
      return static_cast<std::uint8_t>(bits);
    case kInt32:
      return static_cast<std::int32_t>(bits);
    case kUint32:
      return static_cast<std::uint32_t>(bits);
    case kInt64:
      return static_cast<std::int64_t>(bits);
    case kUint64:
      return bits;
    case kFloat32: {
      const auto narrow = static_cast<std::uint32_t>(bits);
      float value = 0;
      std::memcpy(&value, &narrow, sizeof value);
      return value;
    }
    case kFloat64: {
      double value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    default:
      break;
  }
  int stored = 0;
  int exponents = 0;
  if (datatype == kFloat16) stored = 10, exponents = 5;
  if (datatype == kBfloat16) stored = 7, exponents = 8;
  if (datatype == kFloat8E4m3) stored = 3, exponents = 4;
  if (datatype == kFloat8E5m2) stored = 2, exponents = 5;
  const int bias = (1 << (exponents - 1)) - 1;
  const long double sign = (bits >> (stored + exponents)) & 1 ? -1 : 1;
  const int exponent = static_cast<int>((bits >> stored) & ((1U << exponents) - 1));
  const auto fraction = static_cast<long double>(bits & ((1U << stored) - 1));
  if (datatype == kFloat8E4m3 ? (bits & 0x7f) == 0x7f : exponent == (1 << exponents) - 1) {
    return datatype != kFloat8E4m3 && fraction == 0 ? sign * std::numeric_limits<long double>::infinity()
                                                    : std::numeric_limits<long double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - stored);
  return sign * std::ldexp(1 + std::ldexp(fraction, -stored), exponent - bias);
}

u64 element_of(u32 datatype, u64 word, u32 index) {
  return (word >> (8 * element_bytes(datatype) * index)) & element_mask(datatype);
}

TEST(Values, EveryByteOfAStreamDependsOnSeedRankAndPlace) {
  for (u64 word : {0ULL, 1ULL, 1000ULL}) {
    int differing_seed[8] = {};
    int differing_rank[8] = {};
    int differing_word[8] = {};
    for (u64 seed = 0; seed < 200; ++seed) {
      for (u32 byte = 0; byte < 8; ++byte) {
        const u32 here = byte_of(raw_word(stream_key(seed, 3), word), byte);
        differing_seed[byte] += here != byte_of(raw_word(stream_key(seed + 1, 3), word), byte);
        differing_rank[byte] += here != byte_of(raw_word(stream_key(seed, 4), word), byte);
        differing_word[byte] += here != byte_of(raw_word(stream_key(seed, 3), word + 1), byte);
      }
    }
    for (int byte = 0; byte < 8; ++byte) {
      EXPECT_GT(differing_seed[byte], 190);
      EXPECT_GT(differing_rank[byte], 190);
      EXPECT_GT(differing_word[byte], 190);
    }
  }
}

TEST(Values, PoisonDiffersFromWhatMustArriveInEveryByte) {
  for (u32 datatype : kDatatypes) {
    for (u32 op : {kRaw, kSum, kMax}) {
      const Recipe recipe = recipe_of(datatype, op, 4);
      for (u64 word = 0; word < 50; ++word) {
        const u64 due = expected_word(datatype, op, 7, 2, recipe, word);
        const u64 poison = fill_word(datatype, op, 7, -1 - 2, recipe, word);
        for (u32 byte = 0; byte < 8; ++byte) EXPECT_NE(byte_of(due, byte), byte_of(poison, byte));
      }
    }
  }
}

// In long double (64 bits of significand) all partial results below are exact; the datatype must hold each of them.
TEST(Values, ReductionsAreExactInAnyOrderAndAreWhatIsExpected) {
  for (u32 datatype : kDatatypes) {
    for (u32 op : kOps) {
      for (int ranks : {1, 2, 3, 4, 7, 8, 16, 33, 300}) {
        if (!reduction_is_exact(datatype, op, ranks)) {
          EXPECT_TRUE(op == kAvg && is_float(datatype)) << datatype << " " << op << " " << ranks;
          continue;
        }
        const Recipe recipe = recipe_of(datatype, op, ranks);
        const u32 count = 8 / element_bytes(datatype);
        for (u64 word = 0; word < 40; ++word) {
          const u64 due = expected_word(datatype, op, 99, 0, recipe, word);
          for (u32 i = 0; i < count; ++i) {
            std::vector<long double> values;
            for (int rank = 0; rank < ranks; ++rank) {
              values.push_back(
                  value_of(datatype, element_of(datatype, fill_word(datatype, op, 99, rank, recipe, word), i)));
            }
            for (int order = 0; order < 3; ++order) {
              std::rotate(values.begin(), values.begin() + ranks / 2, values.end());
              if (order == 1) std::reverse(values.begin(), values.end());
              if (order == 2) std::sort(values.begin(), values.end());
              long double result = values[0];
              for (int rank = 1; rank < ranks; ++rank) {
                const long double next = values[rank];
                if (op == kSum || op == kAvg) result += next;
                if (op == kProd) result *= next;
                if (op == kMin) result = std::min(result, next);
                if (op == kMax) result = std::max(result, next);
                if (op == kSum || op == kAvg) {
                  ASSERT_LE(std::fabs(result), static_cast<long double>(largest_exact_integer(datatype)));
                }
                if (op == kProd && is_float(datatype)) {
                  ASSERT_LE(std::fabs(result), datatype == kFloat8E4m3 ? 448 : 0x1p62L);
                }
              }
              if (op == kAvg) result = is_float(datatype) ? result / ranks : std::trunc(result / ranks);
              ASSERT_EQ(result, value_of(datatype, element_of(datatype, due, i)))
                  << "datatype " << datatype << " op " << op << " ranks " << ranks << " word " << word;
            }
          }
        }
      }
    }
  }
}

TEST(Values, SmallValuesAreNotAllAlike) {
  for (u32 datatype : kDatatypes) {
    for (u32 op : kOps) {
      const Recipe recipe = recipe_of(datatype, op, 4);
      std::set<u64> seen;
      for (u64 word = 0; word < 200; ++word) seen.insert(fill_word(datatype, op, 1, 1, recipe, word));
      EXPECT_GT(seen.size(), element_bytes(datatype) == 8 ? 8U : 30U) << datatype << " " << op;
    }
  }
}

TEST(Values, NarrowFloatsDecodeByTheirDefinitionAndEncodeBack) {
  for (u32 datatype : {kFloat16, kBfloat16, kFloat8E4m3, kFloat8E5m2}) {
    for (u32 bits = 0; bits <= element_mask(datatype); ++bits) {
      const long double due = value_of(datatype, bits);
      const float found = decode_narrow(datatype, bits);
      if (std::isnan(due)) {
        ASSERT_TRUE(std::isnan(found)) << datatype << " " << bits;
        ASSERT_TRUE(std::isnan(value_of(datatype, encode_narrow(datatype, found))));
      } else {
        ASSERT_EQ(due, static_cast<long double>(found)) << datatype << " " << bits;
        if (std::isfinite(found)) {
          ASSERT_EQ(encode_narrow(datatype, found), bits);
        }
      }
    }
  }
}

// Nearest, ties to even: by search over all finite values of the format.
TEST(Values, NarrowFloatsRoundToNearestEven) {
  for (u32 datatype : {kFloat16, kBfloat16, kFloat8E4m3, kFloat8E5m2}) {
    const u32 sign = 1U << (8 * element_bytes(datatype) - 1);
    u32 last = sign - 1;
    while (!std::isfinite(value_of(datatype, last))) --last;
    u64 state = 5;
    for (u32 trial = 0; trial < 20000; ++trial) {
      state = mix(state + trial);
      const u32 low = static_cast<u32>(state % last);
      const long double below = value_of(datatype, low);
      const long double above = value_of(datatype, low + 1);
      for (long double share : {0.25L, 0.5L, 0.75L}) {
        const auto between = static_cast<float>(below + (above - below) * share);
        if (static_cast<long double>(between) != below + (above - below) * share) continue;
        const u32 due = share < 0.5L ? low : share > 0.5L ? low + 1 : low + (low & 1);
        ASSERT_EQ(encode_narrow(datatype, between), due) << datatype << " " << low << " " << static_cast<double>(share);
        ASSERT_EQ(encode_narrow(datatype, -between), due | sign);
      }
    }
  }
}

TEST(Values, KnownEncodings) {
  EXPECT_EQ(encode(kFloat16, 1, 0), 0x3c00U);
  EXPECT_EQ(encode(kBfloat16, -2, 0), 0xc000U);
  EXPECT_EQ(encode(kFloat32, 16777215, 0), 0x4b7fffffU);
  EXPECT_EQ(encode(kFloat8E4m3, 448, 0), 0x7eU);
  EXPECT_EQ(encode(kFloat8E5m2, 1, -16), 0x01U);  // the least subnormal
  EXPECT_EQ(encode(kFloat16, 3, -24), 0x0003U);
  EXPECT_EQ(encode(kInt8, -2, 0), 0xfeU);
  EXPECT_EQ(encode_narrow(kFloat16, 65520.0F), 0x7c00U);
  EXPECT_EQ(encode_narrow(kFloat8E4m3, 465.0F), 0x7fU);
}

}  // namespace
}  // namespace linkgauge::values
