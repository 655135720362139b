// A grid's threads, blocks and clock, as direct.h and push.h ask for them, and direct.h's reduction by them.

namespace linkgauge {

#if LG_IS_HIP
#if __has_builtin(__builtin_readsteadycounter)
#define LG_TICKS() __builtin_readsteadycounter()
#elif defined(__GFX9__) || defined(__GFX10__)
#define LG_TICKS() __builtin_amdgcn_s_memrealtime()
#else
#define LG_TICKS() 0ULL  // then the number of looks alone is the bound
#endif
#endif

// Nanoseconds on CUDA; on HIP the counter that stands still in no power state, 100 MHz on the devices of data centers.
__device__ __forceinline__ u64 steady_ticks() {
#if LG_IS_HIP
  return LG_TICKS();
#else
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#endif
}

struct GridExec {
  volatile int* failure_of_block;  // shared by the block
  __device__ __forceinline__ u64 thread() const { return threadIdx.x; }
  __device__ __forceinline__ u64 threads() const { return blockDim.x; }
  __device__ __forceinline__ u64 block() const { return blockIdx.x; }
  __device__ __forceinline__ u64 blocks() const { return gridDim.x; }
  __device__ __forceinline__ void sync() { __syncthreads(); }
  __device__ __forceinline__ void pause() {}
  __device__ __forceinline__ u64 ticks() const { return steady_ticks(); }
  // A look takes some hundreds of nanoseconds: well over the patience, which is the bound wherever there is a clock.
  __device__ __forceinline__ u64 most_looks() const { return 1ULL << 26; }
  __device__ __forceinline__ u64 load_acquire(const u64* place) const { return load_acquire_system(place); }
  __device__ __forceinline__ void store_release(u64* place, u64 value) const { store_release_system(place, value); }
  __device__ __forceinline__ void fail() { *failure_of_block = 1; }
  __device__ __forceinline__ bool failed() const { return *failure_of_block != 0; }
};

// A call, not an inlined copy: all datatypes in one body would take the registers of the widest.
template <u32 kDatatype>
__device__ __noinline__ void reduce_part_of_block(const direct::Places& places, int ranks, int rank, direct::Part part,
                                                  int writes, u32 op) {
  const GridExec exec = {nullptr};
  direct::reduce_part<kDatatype>(exec, places, ranks, rank, part, writes, op);
}

struct GridReducer {
  const direct::Places& places;
  int ranks;
  int rank;
  u32 op;
  direct::Part part;
  int writes;
  template <u32 kDatatype>
  __device__ __forceinline__ void run() {
    reduce_part_of_block<kDatatype>(places, ranks, rank, part, writes, op);
  }
};

}  // namespace linkgauge
