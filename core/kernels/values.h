// The data patterns: what `lg_fill` writes and what `lg_check` expects, for the host's kernels and the device's.
//
// This text includes nothing on a device: it is compiled as C++20 here, and placed before the device source for NVRTC
// and hipRTC.
//
// A stream of bytes belongs to (seed, rank). It is made of 64-bit words, word w holding the bytes 8 w .. 8 w + 7 in
// little-endian order; every byte depends on seed, rank and w. For reductions the elements that lie in a word are
// small values cut from the very bits of the word, such that the reduction over all ranks is exact in the datatype
// whatever the order of the operands; `reduction_is_exact` says where that cannot be had.
//
// A negative rank asks for poison: the complement of what must arrive, so that no byte that was never written can pass.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__) || defined(__CUDACC__) || defined(__HIPCC__)
#define LG_VALUES_FN __host__ __device__ __forceinline__
#else
#include "base/datatypes.h"
#define LG_VALUES_FN inline __attribute__((always_inline))
#endif

namespace linkgauge {
namespace values {

using u64 = unsigned long long;
using i64 = long long;
using u32 = unsigned int;

#define LG_NUMBER(constant, ...) constant,
enum class DatatypeNumber : u32 { LINKGAUGE_DATATYPES(LG_NUMBER) kCount };
enum class ReduceOpNumber : u32 { LINKGAUGE_REDUCE_OPS(LG_NUMBER) kCount };
#undef LG_NUMBER
#define LG_DATATYPE(constant, ...) constexpr u32 constant = static_cast<u32>(DatatypeNumber::constant);
LINKGAUGE_DATATYPES(LG_DATATYPE)
#undef LG_DATATYPE
#define LG_REDUCE_OP(constant, ...) constexpr u32 constant = static_cast<u32>(ReduceOpNumber::constant);
LINKGAUGE_REDUCE_OPS(LG_REDUCE_OP)
#undef LG_REDUCE_OP
constexpr u32 kDatatypeCount = static_cast<u32>(DatatypeNumber::kCount);
constexpr u32 kReduceOpCount = static_cast<u32>(ReduceOpNumber::kCount);
constexpr u32 kRaw = 255;  // kRawBytes of kernels.h: no reduction, the data are bytes

LG_VALUES_FN u32 element_bytes(u32 datatype) {
  switch (datatype) {
#define LG_BYTES(constant, name, bytes) \
  case constant:                        \
    return bytes;
    LINKGAUGE_DATATYPES(LG_BYTES)
#undef LG_BYTES
    default:
      return 1;
  }
}

LG_VALUES_FN bool is_float(u32 datatype) { return datatype >= kFloat16; }

LG_VALUES_FN bool is_unsigned(u32 datatype) { return datatype == kUint8 || datatype == kUint32 || datatype == kUint64; }

// Bits of the stored significand and of the exponent of a floating-point datatype (fp8 as OCP defines them: e4m3 has
// no infinity, bias 7; e5m2 has, bias 15).
LG_VALUES_FN u32 significand_bits(u32 datatype) {
  switch (datatype) {
    case kFloat16:
      return 10;
    case kBfloat16:
      return 7;
    case kFloat32:
      return 23;
    case kFloat64:
      return 52;
    case kFloat8E4m3:
      return 3;
    default:
      return 2;  // e5m2
  }
}

LG_VALUES_FN u32 exponent_bits(u32 datatype) {
  switch (datatype) {
    case kBfloat16:
    case kFloat32:
      return 8;
    case kFloat64:
      return 11;
    case kFloat8E4m3:
      return 4;
    default:
      return 5;  // float16, e5m2
  }
}

LG_VALUES_FN u64 element_mask(u32 datatype) {
  const u32 width = 8 * element_bytes(datatype);
  return width == 64 ? ~0ULL : (1ULL << width) - 1;
}

// Every integer up to this one, inclusive, is a value of the datatype.
LG_VALUES_FN u64 largest_exact_integer(u32 datatype) {
  switch (datatype) {
    case kInt8:
      return 127;
    case kUint8:
      return 255;
    case kInt32:
      return 0x7fffffffULL;
    case kUint32:
      return 0xffffffffULL;
    case kInt64:
    case kUint64:
      return 1ULL << 62;
    default:
      return 1ULL << (significand_bits(datatype) + 1);
  }
}

// How many factors of 2 a value of the datatype can hold.
LG_VALUES_FN u32 largest_power_of_two(u32 datatype) {
  switch (datatype) {
    case kInt8:
      return 6;
    case kUint8:
      return 7;
    case kInt32:
      return 30;
    case kUint32:
      return 31;
    case kInt64:
    case kUint64:
      return 62;
    case kFloat8E4m3:
      return 8;
    case kFloat16:
    case kFloat8E5m2:
      return 15;
    default:
      return 62;  // bfloat16, float32, float64 hold more; the reckoning here is in 64-bit integers
  }
}

LG_VALUES_FN bool is_power_of_two(i64 value) { return value > 0 && (value & (value - 1)) == 0; }

// Whether the reduction of the small values of `ranks` ranks is the same in any order, in that datatype. All but avg
// always are. avg of floats is when 1/ranks is exact: some libraries multiply by it before they add.
LG_VALUES_FN bool reduction_is_exact(u32 datatype, u32 op, int ranks) {
  if (ranks < 1) return false;
  if (op != kAvg || !is_float(datatype)) return true;
  if (!is_power_of_two(ranks)) return false;
  const int bias = (1 << (exponent_bits(datatype) - 1)) - 1;
  const int smallest_log2 = bias - 1 + static_cast<int>(significand_bits(datatype));  // 2^-that is the least subnormal
  return static_cast<u64>(ranks) <= (smallest_log2 >= 62 ? 1ULL << 62 : 1ULL << smallest_log2);
}

// --- raw bytes ---------------------------------------------------------------------------------------------------

// The finalizer of splitmix64 (Steele, Lea, Flood 2014): each bit of the result depends on each bit of z.
LG_VALUES_FN u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Where the stream of `rank` starts. What depends on the seed alone is reckoned once, outside of loops.
LG_VALUES_FN u64 stream_key(u64 seed, int rank) {
  return mix(mix(seed) + 0x9e3779b97f4a7c15ULL) + 0xd1342543de82ef95ULL * static_cast<u64>(rank);
}

// Word `word` (bytes 8 word .. 8 word + 7) of the stream with that key.
LG_VALUES_FN u64 raw_word(u64 key, u64 word) { return mix(key + 0x9e3779b97f4a7c15ULL * word); }

// --- narrow floats, also for kernels that reduce -----------------------------------------------------------------

union FloatBits {
  float value;
  u32 bits;
};

union DoubleBits {
  double value;
  u64 bits;
};

// The value of a float16, bfloat16, e4m3 or e5m2 element.
LG_VALUES_FN float decode_narrow(u32 datatype, u32 bits) {
  FloatBits result;
  if (datatype == kBfloat16) {
    result.bits = bits << 16;
    return result.value;
  }
  const u32 stored = significand_bits(datatype);
  const u32 width = 8 * element_bytes(datatype);
  const u32 bias = (1U << (exponent_bits(datatype) - 1)) - 1;
  const u32 magnitude = bits & ((1U << (width - 1)) - 1);
  const u32 sign = (bits >> (width - 1)) << 31;
  const u32 top = (1U << exponent_bits(datatype)) - 1;
  const u32 exponent = magnitude >> stored;
  if (datatype == kFloat8E4m3 ? magnitude == 0x7f : exponent == top) {
    const u32 fraction = magnitude & ((1U << stored) - 1);
    result.bits = sign | 0x7f800000U | (fraction << (23 - stored));
    return result.value;
  }
  if (exponent == 0) {  // subnormal: magnitude * 2^(1 - bias - stored), which float32 holds exactly
    FloatBits unit;
    unit.bits = (127 + 1 - bias - stored) << 23;
    result.value = static_cast<float>(magnitude) * unit.value;
    result.bits |= sign;
    return result.value;
  }
  result.bits = sign | ((magnitude << (23 - stored)) + ((127 - bias) << 23));
  return result.value;
}

// The nearest element, ties to even; beyond the largest finite value infinity, or NaN for e4m3, which has none.
LG_VALUES_FN u32 encode_narrow(u32 datatype, float value) {
  FloatBits input;
  input.value = value;
  const u32 stored = significand_bits(datatype);
  const u32 width = 8 * element_bytes(datatype);
  const u32 bias = (1U << (exponent_bits(datatype) - 1)) - 1;
  const u32 top = (1U << exponent_bits(datatype)) - 1;
  const u32 sign = (input.bits >> 31) << (width - 1);
  const u32 magnitude = input.bits & 0x7fffffffU;
  const u32 infinity = datatype == kFloat8E4m3 ? 0x7fU : top << stored;
  if (magnitude > 0x7f800000U) return sign | (datatype == kFloat8E4m3 ? 0x7fU : (top << stored) | (1U << (stored - 1)));
  const u32 exponent = magnitude >> 23;
  const u32 least = 127 + 1 - bias;  // float32's biased exponent of the least normal value
  u32 shift = 23 - stored;
  u32 significand = magnitude;
  u32 base = 0;
  if (exponent >= least || datatype == kBfloat16) {  // bfloat16 has float32's subnormals
    base = (least - 1) << 23;                        // what to take off float32's exponent
  } else {
    const u32 further = least - exponent;
    if (exponent == 0 || shift + further > 24) return sign;  // below half of the least subnormal
    significand = (magnitude & 0x7fffffU) | 0x800000U;
    shift += further;  // a subnormal's units are 2^(1 - bias - stored)
  }
  const u32 kept = (significand - base) >> shift;
  const u32 rest = (significand - base) & ((1U << shift) - 1);
  const u32 half = 1U << (shift - 1);
  const u32 rounded = kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
  return sign | (rounded >= infinity ? infinity : rounded);
}

// --- small values for reductions ---------------------------------------------------------------------------------

// What all ranks know before they make values: reckon it once, outside of loops.
struct Recipe {
  u64 mask;  // sum, avg: values are 0..mask (2^k - 1); prod: exponents of 2 are; min, max of floats: magnitudes
  int ranks;
  int window;  // how many ranks, cyclic from (element mod ranks), contribute more than the neutral element's magnitude
};

LG_VALUES_FN Recipe recipe_of(u32 datatype, u32 op, int ranks) {
  Recipe recipe = {0, ranks < 1 ? 1 : ranks, ranks < 1 ? 1 : ranks};
  const u64 limit = largest_exact_integer(datatype);
  if (op == kSum || op == kAvg) {
    if (static_cast<u64>(recipe.window) > limit) recipe.window = static_cast<int>(limit);
    const u64 share = limit / static_cast<u64>(recipe.window);
    while (2 * recipe.mask + 1 <= share) recipe.mask = 2 * recipe.mask + 1;
  } else if (op == kProd) {
    const u64 most = largest_power_of_two(datatype);
    if (static_cast<u64>(recipe.window) > most) recipe.window = static_cast<int>(most);
    const u64 share = most / static_cast<u64>(recipe.window);
    while (2 * recipe.mask + 1 <= share) recipe.mask = 2 * recipe.mask + 1;
  } else {
    recipe.mask = limit - 1;
  }
  return recipe;
}

// Whether `rank` is one of those that contribute to element `element`.
LG_VALUES_FN bool contributes(const Recipe& recipe, int rank, u64 element) {
  if (recipe.window >= recipe.ranks) return true;
  const int start = static_cast<int>(element % static_cast<u64>(recipe.ranks));
  const int place = rank >= start ? rank - start : rank - start + recipe.ranks;
  return place < recipe.window;
}

// The value of `rank` for element number `element` of the stream, from the element's own bits of the raw word. uint64
// values are the same bits.
LG_VALUES_FN i64 small_value(u32 datatype, u32 op, const Recipe& recipe, int rank, u64 element, u64 bits) {
  const u32 width = 8 * element_bytes(datatype);
  if (op == kSum || op == kAvg) {
    return contributes(recipe, rank, element) ? static_cast<i64>(bits & recipe.mask) : 0;
  }
  if (op == kProd) {
    const i64 magnitude = contributes(recipe, rank, element) ? 1LL << (bits & recipe.mask) : 1;
    return ((bits >> (width - 1)) & 1) != 0 && !is_unsigned(datatype) ? -magnitude : magnitude;
  }
  if (is_float(datatype)) {  // min, max: never -0, whose order against +0 libraries differ about
    const i64 magnitude = static_cast<i64>(bits & recipe.mask);
    return ((bits >> (width - 1)) & 1) != 0 ? -magnitude : magnitude;
  }
  if (is_unsigned(datatype) || width == 64) return static_cast<i64>(bits);
  return static_cast<i64>(bits << (64 - width)) >> (64 - width);  // sign extension
}

LG_VALUES_FN i64 combine(u32 datatype, u32 op, i64 left, i64 right) {
  if (op == kSum || op == kAvg) return left + right;
  if (op == kProd) return left * right;
  const bool less = datatype == kUint64 ? static_cast<u64>(left) < static_cast<u64>(right) : left < right;
  return less == (op == kMin) ? left : right;
}

// value * 2^exponent as raw bits of the datatype; exact, since only such values are asked for: float32 holds every one
// that a narrower float does. Integers: exponent 0.
LG_VALUES_FN u64 encode(u32 datatype, i64 value, int exponent) {
  if (!is_float(datatype)) return static_cast<u64>(value) & element_mask(datatype);
  if (datatype == kFloat64) {
    DoubleBits scale;
    scale.bits = static_cast<u64>(1023 + exponent) << 52;
    scale.value *= static_cast<double>(value);
    return scale.bits;
  }
  FloatBits scale;
  scale.bits = static_cast<u32>(127 + exponent) << 23;
  scale.value *= static_cast<float>(value);
  return datatype == kFloat32 ? scale.bits : encode_narrow(datatype, scale.value);
}

// The result of a reduction as raw bits: `combined` is combine() over all ranks.
LG_VALUES_FN u64 encode_result(u32 datatype, u32 op, i64 combined, int ranks) {
  if (op != kAvg) return encode(datatype, combined, 0);
  if (!is_float(datatype)) return encode(datatype, combined / ranks, 0);
  int log2 = 0;
  while ((1LL << (log2 + 1)) <= ranks) ++log2;
  return encode(datatype, combined, -log2);
}

// --- the two functions that kernels need -------------------------------------------------------------------------

// What must be in word `word` of a checked range. op == kRaw: the stream of `rank`; else the reduction over all ranks.
LG_VALUES_FN u64 expected_word(u32 datatype, u32 op, u64 seed, int rank, const Recipe& recipe, u64 word) {
  if (op == kRaw) return raw_word(stream_key(seed, rank), word);
  const u32 width = 8 * element_bytes(datatype);
  const u32 count = 64 / width;
  i64 combined[8] = {};
  for (int source = 0; source < recipe.ranks; ++source) {
    const u64 raw = raw_word(stream_key(seed, source), word);
    for (u32 i = 0; i < count; ++i) {
      const i64 value =
          small_value(datatype, op, recipe, source, word * count + i, (raw >> (i * width)) & element_mask(datatype));
      combined[i] = source == 0 ? value : combine(datatype, op, combined[i], value);
    }
  }
  u64 result = 0;
  for (u32 i = 0; i < count; ++i) result |= encode_result(datatype, op, combined[i], recipe.ranks) << (i * width);
  return result;
}

// What `lg_fill` writes into word `word`: the data of `rank`, or poison where rank < 0: the complement of what
// expected_word gives (raw bytes: for rank -1 - rank).
LG_VALUES_FN u64 fill_word(u32 datatype, u32 op, u64 seed, int rank, const Recipe& recipe, u64 word) {
  if (rank < 0) return ~expected_word(datatype, op, seed, -1 - rank, recipe, word);
  const u64 raw = raw_word(stream_key(seed, rank), word);
  if (op == kRaw) return raw;
  const u32 width = 8 * element_bytes(datatype);
  const u32 count = 64 / width;
  u64 result = 0;
  for (u32 i = 0; i < count; ++i) {
    const i64 value =
        small_value(datatype, op, recipe, rank, word * count + i, (raw >> (i * width)) & element_mask(datatype));
    result |= encode(datatype, value, 0) << (i * width);
  }
  return result;
}

// Byte `offset` of the stream whose words are `word` (of offset / 8).
LG_VALUES_FN u32 byte_of(u64 word, u64 offset) { return static_cast<u32>(word >> (8 * (offset & 7))) & 0xffU; }

}  // namespace values
}  // namespace linkgauge
