// How elements of each datatype are held and reckoned with, for the device's kernels and, compiled as C++, for the
// host.
//
// This text includes nothing (values.h says why); it comes after values.h.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__) || defined(__CUDACC__) || defined(__HIPCC__)
#define LG_ON_DEVICE 1
#else
#define LG_ON_DEVICE 0
#endif
#if defined(__HIP__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define LG_IS_HIP 1
#else
#define LG_IS_HIP 0
#endif

#if LG_ON_DEVICE
#define LG_UNROLL _Pragma("unroll")
#define LG_NO_UNROLL _Pragma("unroll 1")  // what the compiler would unroll by itself costs seconds at start-up
#else
#define LG_UNROLL  // the host's compiler unrolls by itself, and knows no such words
#define LG_NO_UNROLL
#endif

namespace linkgauge {
namespace elements {

using values::i64;
using values::u32;
using values::u64;

// What one load or store moves, at most and where elements are so narrow that 16 bytes of them take too many registers.
// Not uint4: HIP's has constructors, which no union's member may have.
struct alignas(16) Word16 {
  u32 lanes[4];
};
struct alignas(8) Word8 {
  u32 lanes[2];
};

// How a datatype is held in memory and how it is reckoned with. Narrow floats are reckoned in float and rounded once.
template <u32 kDatatype>
struct Element;

template <typename StoredType, typename WideType>
struct PlainElement {
  using Stored = StoredType;
  using Wide = WideType;
  static LG_VALUES_FN Wide widen(Stored value) { return static_cast<Wide>(value); }
  static LG_VALUES_FN Stored narrow(Wide value) { return static_cast<Stored>(value); }
};
template <>
struct Element<values::kInt8> : PlainElement<signed char, int> {};
template <>
struct Element<values::kUint8> : PlainElement<unsigned char, u32> {};
template <>
struct Element<values::kInt32> : PlainElement<int, int> {};
template <>
struct Element<values::kUint32> : PlainElement<u32, u32> {};
template <>
struct Element<values::kInt64> : PlainElement<i64, i64> {};
template <>
struct Element<values::kUint64> : PlainElement<u64, u64> {};
template <>
struct Element<values::kFloat32> : PlainElement<float, float> {};
template <>
struct Element<values::kFloat64> : PlainElement<double, double> {};

template <u32 kDatatype, typename StoredType>
struct NarrowElement {
  using Stored = StoredType;
  using Wide = float;
  static LG_VALUES_FN float widen(Stored value) { return values::decode_narrow(kDatatype, value); }
  static LG_VALUES_FN Stored narrow(float value) {
    return static_cast<Stored>(values::encode_narrow(kDatatype, value));
  }
};
template <>
struct Element<values::kBfloat16> : NarrowElement<values::kBfloat16, unsigned short> {};
template <>
struct Element<values::kFloat8E4m3> : NarrowElement<values::kFloat8E4m3, unsigned char> {};
template <>
struct Element<values::kFloat8E5m2> : NarrowElement<values::kFloat8E5m2, unsigned char> {};

// float16 has instructions of its own on every device.
template <>
struct Element<values::kFloat16> {
  using Stored = unsigned short;
  using Wide = float;
#if !LG_ON_DEVICE
  static LG_VALUES_FN float widen(Stored value) { return values::decode_narrow(values::kFloat16, value); }
  static LG_VALUES_FN Stored narrow(float value) {
    return static_cast<Stored>(values::encode_narrow(values::kFloat16, value));
  }
#elif LG_IS_HIP
  union Bits {
    unsigned short bits;
    _Float16 value;
  };
  static LG_VALUES_FN float widen(Stored value) {
    Bits held;
    held.bits = value;
    return static_cast<float>(held.value);
  }
  static LG_VALUES_FN Stored narrow(float value) {
    Bits held;
    held.value = static_cast<_Float16>(value);
    return held.bits;
  }
#else
  static LG_VALUES_FN float widen(Stored value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
    return wide;
  }
  static LG_VALUES_FN Stored narrow(float value) {
    Stored held;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(held) : "f"(value));
    return held;
  }
#endif
};

// `into` op= `next`, element by element. The op is the same for all threads, so this costs one branch a vector; a
// template over it would cost five times the code, and with it the time to compile.
template <int kEach, typename Wide>
LG_VALUES_FN void combine(Wide (&into)[kEach], const Wide (&next)[kEach], u32 op) {
  if (op == values::kSum || op == values::kAvg) {
    LG_UNROLL
    for (int e = 0; e < kEach; ++e) into[e] += next[e];
  } else if (op == values::kProd) {
    LG_UNROLL
    for (int e = 0; e < kEach; ++e) into[e] *= next[e];
  } else {
    LG_UNROLL
    for (int e = 0; e < kEach; ++e) into[e] = (next[e] < into[e]) == (op == values::kMin) ? next[e] : into[e];
  }
}

template <int kEach, typename Wide>
LG_VALUES_FN void finish(Wide (&sum)[kEach], u32 op, int count) {
  if (op != values::kAvg) return;
  LG_UNROLL
  for (int e = 0; e < kEach; ++e) sum[e] = sum[e] / static_cast<Wide>(count);
}

template <u32 kDatatype>
struct WordOf {
  using Type = Word16;
};
template <>
struct WordOf<values::kFloat8E4m3> {
  using Type = Word8;
};
template <>
struct WordOf<values::kFloat8E5m2> {
  using Type = Word8;
};

// Calls function.template run<datatype>() for the datatype, which is the same for all threads.
template <typename Function>
LG_VALUES_FN void with_datatype(u32 datatype, Function& function) {
  switch (datatype) {
#define LG_RUN(constant, ...) \
  case values::constant:      \
    return function.template run<values::constant>();
    LINKGAUGE_DATATYPES(LG_RUN)
#undef LG_RUN
  }
}

}  // namespace elements
}  // namespace linkgauge
