// Copies by the multiprocessor's bulk copy unit (cp.async.bulk, compute capability 9.0 and newer): one thread a block
// moves chunks through a ring in shared memory. A program pays few multiprocessors for a link's full rate.

#if !LG_IS_HIP && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

namespace linkgauge {

constexpr u32 kStages = 8;  // chunks of the ring
constexpr u32 kStoring = 2;  // of them, how many may still be read by stores while loads fill the others
constexpr u32 kBarrierBytes = 128;

__device__ __forceinline__ u32 shared_address(const void* memory) {
  return static_cast<u32>(__cvta_generic_to_shared(memory));
}

__device__ __forceinline__ void bulk_load(u32 stage, const unsigned char* source, u32 bytes, u32 barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(stage),
               "l"(source), "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void bulk_store(unsigned char* target, u32 stage, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(stage), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ __forceinline__ void wait_loaded(u32 barrier, u32 parity) {
  u32 done = 0;
  while (done == 0) {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// The chunks blockIdx.x, blockIdx.x + gridDim.x, ... of `bytes` (a multiple of 16, both addresses too).
__device__ __forceinline__ void copy_chunks(unsigned char* target, const unsigned char* source, u64 bytes, u32 ring,
                                            u32 chunk) {
  const u32 barriers = ring + kStages * chunk;
  for (u32 i = 0; i < kStages; ++i)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * i) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the copy unit must see them
  const u64 chunks = (bytes + chunk - 1) / chunk;
  const u64 mine = blockIdx.x < chunks ? (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  const auto place = [&](u64 k) { return (blockIdx.x + k * gridDim.x) * chunk; };
  const auto length = [&](u64 k) {
    const u64 left = bytes - place(k);
    return static_cast<u32>(left < chunk ? left : chunk);
  };
  const auto load = [&](u64 k) {
    const u32 stage = static_cast<u32>(k % kStages);
    bulk_load(ring + stage * chunk, source + place(k), length(k), barriers + 8 * stage);
  };
  for (u64 k = 0; k < mine && k < kStages; ++k) load(k);
  for (u64 k = 0; k < mine; ++k) {
    const u32 stage = static_cast<u32>(k % kStages);
    wait_loaded(barriers + 8 * stage, static_cast<u32>(k / kStages & 1));
    bulk_store(target + place(k), ring + stage * chunk, length(k));
    if (k >= kStoring && k - kStoring + kStages < mine) {
      asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kStoring) : "memory");  // store k - kStoring is out
      load(k - kStoring + kStages);
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace linkgauge

// The ring takes all dynamic shared memory of the launch.
extern "C" __global__ void lg_copy_bulk(void* target, const void* source, unsigned long long bytes) {
  using namespace linkgauge;
  extern __shared__ __align__(128) unsigned char ring[];
  u32 shared_bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(shared_bytes));
  const u32 chunk = shared_bytes > kBarrierBytes ? (shared_bytes - kBarrierBytes) / kStages / 128 * 128 : 0;
  auto* to = static_cast<unsigned char*>(target);
  const auto* from = static_cast<const unsigned char*>(source);
  if (chunk == 0 || (reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from)) % 16 != 0) {
    copy_bytes<4>(target, source, bytes);
    return;
  }
  const u64 whole = bytes / 16 * 16;
  if (threadIdx.x == 0) copy_chunks(to, from, whole, shared_address(ring), chunk);
  if (blockIdx.x == 0 && threadIdx.x < bytes - whole) to[whole + threadIdx.x] = from[whole + threadIdx.x];
}

#endif
