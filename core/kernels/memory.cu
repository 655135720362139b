// Loads and stores that other devices and the host take part in, and copies. Compiled as one text with the other files
// of this folder, after values.h and elements.h; CUDA and HIP alike, without any header.
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

// Waits until *place >= value. False: gave up after `spin_limit` looks, so that no kernel waits for ever.
__device__ __forceinline__ bool wait_for(const volatile u64* place, u64 value, u64 spin_limit) {
  for (u64 spin = 0; spin < spin_limit; ++spin) {
    if (load_acquire_system(place) >= value) return true;
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

// Whole words of both buffers. A block moves one tile of kUnroll words a thread at a time: all its loads are under way
// before the first store, which is what a link's latency asks for.
template <int kUnroll, typename Word>
__device__ __forceinline__ void copy_words(Word* target, const Word* source, u64 words) {
  const u64 tile = static_cast<u64>(blockDim.x) * kUnroll;
  for (u64 start = blockIdx.x * tile; start < words; start += gridDim.x * tile) {
    if (start + tile <= words) {
      Word held[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) held[i] = source[start + i * blockDim.x + threadIdx.x];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) target[start + i * blockDim.x + threadIdx.x] = held[i];
    } else {
      for (u64 i = start + threadIdx.x; i < words; i += blockDim.x) target[i] = source[i];
    }
  }
}

template <int kUnroll, typename Word>
__device__ __forceinline__ void copy_aligned(unsigned char* target, const unsigned char* source, u64 bytes) {
  u64 head = (sizeof(Word) - reinterpret_cast<u64>(target) % sizeof(Word)) % sizeof(Word);
  if (head > bytes) head = bytes;
  const u64 words = (bytes - head) / sizeof(Word);
  copy_words<kUnroll>(reinterpret_cast<Word*>(target + head), reinterpret_cast<const Word*>(source + head), words);
  if (blockIdx.x != 0) return;
  for (u64 i = threadIdx.x; i < head; i += blockDim.x) target[i] = source[i];
  for (u64 i = head + words * sizeof(Word) + threadIdx.x; i < bytes; i += blockDim.x) target[i] = source[i];
}

// The widest words that suit both addresses.
template <int kUnroll>
__device__ __forceinline__ void copy_bytes(void* target, const void* source, u64 bytes) {
  auto* to = static_cast<unsigned char*>(target);
  const auto* from = static_cast<const unsigned char*>(source);
  const u64 apart = reinterpret_cast<u64>(to) ^ reinterpret_cast<u64>(from);
  if (apart % 16 == 0) {
    copy_aligned<kUnroll, uint4>(to, from, bytes);
  } else if (apart % 8 == 0) {
    copy_aligned<kUnroll, u64>(to, from, bytes);
  } else if (apart % 4 == 0) {
    copy_aligned<kUnroll, u32>(to, from, bytes);
  } else {
    copy_aligned<kUnroll, unsigned char>(to, from, bytes);
  }
}

}  // namespace linkgauge

extern "C" {

__global__ void lg_copy(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<4>(target, source, bytes);
}
__global__ void lg_copy_u1(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<1>(target, source, bytes);
}
__global__ void lg_copy_u2(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<2>(target, source, bytes);
}
__global__ void lg_copy_u8(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<8>(target, source, bytes);
}
__global__ void __launch_bounds__(512) lg_copy_u16(void* target, const void* source, unsigned long long bytes) {
  linkgauge::copy_bytes<16>(target, source, bytes);
}

}  // extern "C"
