// Element-wise reduction of any number of buffers, also on other devices, for every datatype and op.

namespace linkgauge {

// How a datatype is held in memory and how it is reckoned with. Narrow floats are reckoned in float and rounded once.
template <u32 kDatatype>
struct Element;

template <typename StoredType, typename WideType>
struct PlainElement {
  using Stored = StoredType;
  using Wide = WideType;
  static __device__ __forceinline__ Wide widen(Stored value) { return static_cast<Wide>(value); }
  static __device__ __forceinline__ Stored narrow(Wide value) { return static_cast<Stored>(value); }
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
  static __device__ __forceinline__ float widen(Stored value) { return values::decode_narrow(kDatatype, value); }
  static __device__ __forceinline__ Stored narrow(float value) {
    return static_cast<Stored>(values::encode_narrow(kDatatype, value));
  }
};
template <>
struct Element<values::kBfloat16> : NarrowElement<values::kBfloat16, unsigned short> {};
template <>
struct Element<values::kFloat8E4m3> : NarrowElement<values::kFloat8E4m3, unsigned char> {};
template <>
struct Element<values::kFloat8E5m2> : NarrowElement<values::kFloat8E5m2, unsigned char> {};

// float16 has instructions of its own everywhere.
template <>
struct Element<values::kFloat16> {
  using Stored = unsigned short;
  using Wide = float;
#if LG_IS_HIP
  union Bits {
    unsigned short bits;
    _Float16 value;
  };
  static __device__ __forceinline__ float widen(Stored value) {
    Bits held;
    held.bits = value;
    return static_cast<float>(held.value);
  }
  static __device__ __forceinline__ Stored narrow(float value) {
    Bits held;
    held.value = static_cast<_Float16>(value);
    return held.bits;
  }
#else
  static __device__ __forceinline__ float widen(Stored value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
    return wide;
  }
  static __device__ __forceinline__ Stored narrow(float value) {
    Stored held;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(held) : "f"(value));
    return held;
  }
#endif
};

// `into` op= `next`, element by element. The op is the same for all threads, so this costs one branch a vector; a
// template over it would cost five times the code, and with it the time to compile.
template <int kEach, typename Wide>
__device__ __forceinline__ void combine(Wide (&into)[kEach], const Wide (&next)[kEach], u32 op) {
  if (op == values::kSum || op == values::kAvg) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) into[e] += next[e];
  } else if (op == values::kProd) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) into[e] *= next[e];
  } else {
#pragma unroll
    for (int e = 0; e < kEach; ++e) into[e] = (next[e] < into[e]) == (op == values::kMin) ? next[e] : into[e];
  }
}

template <int kEach, typename Wide>
__device__ __forceinline__ void finish(Wide (&sum)[kEach], u32 op, int count) {
  if (op != values::kAvg) return;
#pragma unroll
  for (int e = 0; e < kEach; ++e) sum[e] = sum[e] / static_cast<Wide>(count);
}

// One vector of kEach elements at a time, held in Word.
template <u32 kDatatype, typename Word>
__device__ __forceinline__ void reduce_vectors(void* target, const void* const* sources, int count, u64 first, u64 end,
                                               u32 op) {
  using E = Element<kDatatype>;
  using Stored = typename E::Stored;
  using Wide = typename E::Wide;
  constexpr int kEach = sizeof(Word) / sizeof(Stored);
  union Vector {
    Word word;
    Stored values[kEach];
    __device__ Vector() {}
  };
  const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
  for (u64 i = first + static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += step) {
    Vector held;
    held.word = static_cast<const Word*>(sources[0])[i];
    Wide sum[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) sum[e] = E::widen(held.values[e]);
#pragma unroll 1
    for (int s = 1; s < count; ++s) {
      Vector next;
      next.word = static_cast<const Word*>(sources[s])[i];
      Wide wide[kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e) wide[e] = E::widen(next.values[e]);
      combine(sum, wide, op);
    }
    finish(sum, op, count);
#pragma unroll
    for (int e = 0; e < kEach; ++e) held.values[e] = E::narrow(sum[e]);
    static_cast<Word*>(target)[i] = held.word;
  }
}

// Target and sources are read and written in the same place by the same thread, so that target may be a source.
template <u32 kDatatype, typename Word = uint4>
__device__ __noinline__ void reduce_elements(void* target, const void* const* sources, int count, u64 elements,
                                             u32 op) {
  using Stored = typename Element<kDatatype>::Stored;
  constexpr u64 kEach = sizeof(Word) / sizeof(Stored);
  u64 addresses = reinterpret_cast<u64>(target);
  for (int s = 0; s < count; ++s) addresses |= reinterpret_cast<u64>(sources[s]);
  const u64 vectors = addresses % sizeof(Word) == 0 ? elements / kEach : 0;
  reduce_vectors<kDatatype, Word>(target, sources, count, 0, vectors, op);
  reduce_vectors<kDatatype, Stored>(target, sources, count, vectors * kEach, elements, op);
}

}  // namespace linkgauge

extern "C" __global__ void lg_reduce(void* target, const void* const* sources, int count, unsigned long long elements,
                                     unsigned int datatype, unsigned int op) {
  using namespace linkgauge;
  switch (datatype) {
    case values::kInt8:
      return reduce_elements<values::kInt8>(target, sources, count, elements, op);
    case values::kUint8:
      return reduce_elements<values::kUint8>(target, sources, count, elements, op);
    case values::kInt32:
      return reduce_elements<values::kInt32>(target, sources, count, elements, op);
    case values::kUint32:
      return reduce_elements<values::kUint32>(target, sources, count, elements, op);
    case values::kInt64:
      return reduce_elements<values::kInt64>(target, sources, count, elements, op);
    case values::kUint64:
      return reduce_elements<values::kUint64>(target, sources, count, elements, op);
    case values::kFloat16:
      return reduce_elements<values::kFloat16>(target, sources, count, elements, op);
    case values::kBfloat16:
      return reduce_elements<values::kBfloat16>(target, sources, count, elements, op);
    case values::kFloat32:
      return reduce_elements<values::kFloat32>(target, sources, count, elements, op);
    case values::kFloat64:
      return reduce_elements<values::kFloat64>(target, sources, count, elements, op);
    case values::kFloat8E4m3:
      return reduce_elements<values::kFloat8E4m3, uint2>(target, sources, count, elements, op);
    case values::kFloat8E5m2:
      return reduce_elements<values::kFloat8E5m2, uint2>(target, sources, count, elements, op);
  }
}
