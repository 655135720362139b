// Loads and stores that other devices and the host take part in, and copies. Compiled before each .cu file of this
// folder, after values.h and elements.h; CUDA and HIP alike, without any header.
//
// NVRTC and hipRTC both know uint4, blockIdx, threadIdx and the qualifiers; scopes of memory order differ.

namespace linkgauge {

using values::i64;
using values::u32;
using values::u64;

__device__ __forceinline__ u64 load_acquire_system(const volatile u64* place) {
#if LG_IS_HIP
  return __hip_atomic_load(const_cast<const u64*>(place), __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  u64 value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(place) : "memory");
  return value;
#endif
}

__device__ __forceinline__ void store_release_system(volatile u64* place, u64 value) {
#if LG_IS_HIP
  __hip_atomic_store(const_cast<u64*>(place), value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(place), "l"(value) : "memory");
#endif
}

// The same without an order to what is written and read besides: what the wires take, and no fence.
__device__ __forceinline__ u64 load_relaxed_system(const volatile u64* place) {
#if LG_IS_HIP
  return __hip_atomic_load(const_cast<const u64*>(place), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  u64 value;
  asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(place) : "memory");
  return value;
#endif
}

__device__ __forceinline__ void store_relaxed_system(volatile u64* place, u64 value) {
#if LG_IS_HIP
  __hip_atomic_store(const_cast<u64*>(place), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
  asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(place), "l"(value) : "memory");
#endif
}

// Waits until *place >= value. False: gave up after `spin_limit` looks, so that no kernel waits for ever.
template <bool kRelaxed = false>
__device__ __forceinline__ bool wait_for(const volatile u64* place, u64 value, u64 spin_limit) {
  for (u64 spin = 0; spin < spin_limit; ++spin) {
    if ((kRelaxed ? load_relaxed_system(place) : load_acquire_system(place)) >= value) return true;
  }
  return false;
}

// The next pointer of a chain, past the multiprocessor's own cache: a chain is walked to see the memory's latency.
__device__ __forceinline__ const void* load_pointer(const void* place) {
#if LG_IS_HIP
  return reinterpret_cast<const void*>(
      __builtin_nontemporal_load(reinterpret_cast<const u64*>(place)));
#else
  u64 value;
  asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(value) : "l"(place) : "memory");
  return reinterpret_cast<const void*>(value);
#endif
}

// --- copies by load and store ------------------------------------------------------------------------------------

// Which of the threads that share a copy this one is.
struct Share {
  u32 thread;   // of its block
  u32 threads;  // that a block has for this copy
  u32 block;
  u32 blocks;
};
__device__ __forceinline__ Share whole_grid() {
  const Share share = {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};
  return share;
}

// Whole words of both buffers. A block moves one tile of kUnroll words a thread at a time: all its loads are under way
// before the first store, which is what a link's latency asks for.
template <int kUnroll, typename Word>
__device__ __forceinline__ void copy_words(const Share& share, Word* target, const Word* source, u64 words) {
  const u64 tile = static_cast<u64>(share.threads) * kUnroll;
  for (u64 start = share.block * tile; start < words; start += share.blocks * tile) {
    if (start + tile <= words) {
      Word held[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) held[i] = source[start + i * share.threads + share.thread];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) target[start + i * share.threads + share.thread] = held[i];
    } else {
      for (u64 i = start + share.thread; i < words; i += share.threads) target[i] = source[i];
    }
  }
}

template <int kUnroll, typename Word>
__device__ __forceinline__ void copy_aligned(const Share& share, unsigned char* target, const unsigned char* source,
                                             u64 bytes) {
  u64 head = (sizeof(Word) - reinterpret_cast<u64>(target) % sizeof(Word)) % sizeof(Word);
  if (head > bytes) head = bytes;
  const u64 words = (bytes - head) / sizeof(Word);
  copy_words<kUnroll>(share, reinterpret_cast<Word*>(target + head), reinterpret_cast<const Word*>(source + head),
                      words);
  if (share.block != 0) return;
  for (u64 i = share.thread; i < head; i += share.threads) target[i] = source[i];
  for (u64 i = head + words * sizeof(Word) + share.thread; i < bytes; i += share.threads) target[i] = source[i];
}

// The widest words that suit both addresses.
template <int kUnroll>
__device__ __forceinline__ void copy_bytes(void* target, const void* source, u64 bytes,
                                           const Share& share = whole_grid()) {
  auto* to = static_cast<unsigned char*>(target);
  const auto* from = static_cast<const unsigned char*>(source);
  const u64 apart = reinterpret_cast<u64>(to) ^ reinterpret_cast<u64>(from);
  if (apart % 16 == 0) {
    copy_aligned<kUnroll, uint4>(share, to, from, bytes);
  } else if (apart % 8 == 0) {
    copy_aligned<kUnroll, u64>(share, to, from, bytes);
  } else if (apart % 4 == 0) {
    copy_aligned<kUnroll, u32>(share, to, from, bytes);
  } else {
    copy_aligned<kUnroll, unsigned char>(share, to, from, bytes);
  }
}

// Two copies of one length by one grid, whose warps take either in turn.
template <int kUnroll>
__device__ __forceinline__ void copy_both(void* target, const void* source, void* target_back, const void* source_back,
                                          u64 bytes) {
  constexpr u32 kWarp = 32;
  const u32 pair = threadIdx.x / (2 * kWarp);
  const Share share = {pair * kWarp + threadIdx.x % kWarp, blockDim.x / 2, blockIdx.x, gridDim.x};
  const bool back = threadIdx.x / kWarp % 2 != 0;
  copy_bytes<kUnroll>(back ? target_back : target, back ? source_back : source, bytes, share);
}

// A word past the multiprocessor's own cache, both ways: what is read or written again goes to the memory again, or to
// the device's L2 cache.
__device__ __forceinline__ void copy_word_past_l1(uint4* target, const uint4* source) {
#if LG_IS_HIP
  const auto* from = reinterpret_cast<const u64*>(source);
  auto* to = reinterpret_cast<u64*>(target);
  const u64 low = __builtin_nontemporal_load(from), high = __builtin_nontemporal_load(from + 1);
  __builtin_nontemporal_store(low, to);
  __builtin_nontemporal_store(high, to + 1);
  asm volatile("" ::: "memory");
#else
  uint4 word;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(source)
               : "memory");
  asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(target), "r"(word.x), "r"(word.y), "r"(word.z),
               "r"(word.w)
               : "memory");
#endif
}

// Where word `at` lies in a buffer of which a copy has every `step`-th chunk.
__device__ __forceinline__ u64 in_chunks(u64 at, u64 step) {
  constexpr u64 kWords = 32;  // kChunkOfBothWays of kernels.h
  return at / kWords * kWords * step + at % kWords;
}

// Two copies of whole words of 16 bytes by one grid, whose warps take either in turn. A thread copies each of its words
// `times` times in a row, as nvbandwidth's splitWarpCopyKernel does.
__device__ __forceinline__ void copy_both_repeated(void* target, const void* source, void* target_back,
                                                   const void* source_back, u64 bytes, u64 times, u64 target_step,
                                                   u64 source_step) {
  constexpr u32 kWarp = 32;
  const bool back = threadIdx.x / kWarp % 2 != 0;
  auto* const to = static_cast<uint4*>(back ? target_back : target);
  const auto* const from = static_cast<const uint4*>(back ? source_back : source);
  const u64 first = static_cast<u64>(blockIdx.x) * (blockDim.x / 2) + threadIdx.x / (2 * kWarp) * kWarp +
                    threadIdx.x % kWarp;
  for (u64 at = first; at < bytes / sizeof(uint4); at += static_cast<u64>(gridDim.x) * (blockDim.x / 2)) {
    uint4* const into = to + in_chunks(at, target_step);
    const uint4* const out_of = from + in_chunks(at, source_step);
    for (u64 i = 0; i < times; ++i) copy_word_past_l1(into, out_of);
  }
}

}  // namespace linkgauge
