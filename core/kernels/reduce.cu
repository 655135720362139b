// Element-wise reduction of any number of buffers, also on other devices, for every datatype and op.

namespace linkgauge {

using elements::combine;
using elements::Element;
using elements::finish;

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
template <u32 kDatatype, typename Word = typename elements::WordOf<kDatatype>::Type>
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

struct Reduction {
  void* target;
  const void* const* sources;
  int count;
  u64 elements;
  u32 op;
  template <u32 kDatatype>
  __device__ __forceinline__ void run() {
    reduce_elements<kDatatype>(target, sources, count, elements, op);
  }
};

}  // namespace linkgauge

extern "C" __global__ void lg_reduce(void* target, const void* const* sources, int count, unsigned long long elements,
                                     unsigned int datatype, unsigned int op) {
  linkgauge::Reduction reduction = {target, sources, count, elements, op};
  linkgauge::elements::with_datatype(datatype, reduction);
}
