// Kernels that call NVSHMEM on the device. Compiled with its headers and linked with its device library
// (device/linked_kernels.h); transport/nvshmem/kernels.h says what launches them. Places are this PE's own; a PE's
// number beside one says whose of that place is meant.
#include <cuda_awbarrier.h>

#include <cuda/std/cstdint>
// nvcc, by which the library was compiled, takes these for long, and the headers above for long long where NVRTC reads
// them: the library's functions would have other names. Of its headers those of puts alone, which take 2 s, not 20.
typedef long lg_int64;
typedef unsigned long lg_uint64;
#define int64_t lg_int64
#define uint64_t lg_uint64
#include <device/nvshmem_defines.h>
#include <device/nvshmemx_defines.h>

typedef unsigned long long u64;

// How many threads a message's bytes are shared out to: transport/nvshmem/kernels.h, Scope. kWord: of no message, the
// word alone is put, as nvshmem_p does.
enum { kBlock = 0, kWarp = 1, kThread = 2, kWord = 3 };

__device__ __forceinline__ void lg_put_signal(int scope, void* target, const void* source, u64 bytes,
                                              unsigned long* word, u64 value, int operation, int pe) {
  uint64_t* const signal = reinterpret_cast<uint64_t*>(word);
  if (scope == kBlock) {
    nvshmemx_putmem_signal_nbi_block(target, source, bytes, signal, value, operation, pe);
  } else if (scope == kWarp) {
    nvshmemx_putmem_signal_nbi_warp(target, source, bytes, signal, value, operation, pe);
  } else if (scope == kWord) {
    nvshmem_uint64_p(signal, value, pe);
  } else {
    nvshmem_putmem_signal_nbi(target, source, bytes, signal, value, operation, pe);
  }
}

extern "C" {

// Every message, cut into parts of `part` bytes; each part is put with a signal that adds 1. Blocks, warps or threads
// take parts by turns.
__global__ void lg_nvshmem_put(char* target, const char* source, u64 bytes, u64 part, u64 messages,
                               unsigned long* signal, int pe, int scope) {
  const u64 thread = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
  const u64 width = scope == kBlock ? blockDim.x : scope == kWarp ? 32 : 1;
  const u64 parts = bytes > part ? (bytes + part - 1) / part : 1;
  for (u64 unit = thread / width; unit < messages * parts; unit += threads / width) {
    const u64 offset = unit % parts * part;
    const u64 length = bytes - offset < part ? bytes - offset : part;
    lg_put_signal(scope, target + offset, source + offset, length, signal, 1, NVSHMEM_SIGNAL_ADD, pe);
  }
  // What the kernel's end says is then that all is there.
  if (scope == kBlock) __syncthreads();
  if (scope == kWarp) __syncwarp();
  if (threadIdx.x % width == 0) nvshmem_quiet();
}

// One block: round r is the starter's put of `bytes` with the signal r, or of the word r alone, and the other's answer.
// `mine` is this PE's own word.
__global__ void lg_nvshmem_pingpong(char* target, const char* source, u64 bytes, unsigned long* theirs,
                                    unsigned long* mine, u64 first, u64 rounds, int starter, int pe, int scope,
                                    u64 spin_limit, u64* gave_up) {
  __shared__ int came;
  const bool puts = scope == kBlock || (scope == kWarp && threadIdx.x < 32) || threadIdx.x == 0;
  for (u64 round = first; round < first + rounds; ++round) {
    if (starter != 0 && puts) lg_put_signal(scope, target, source, bytes, theirs, round, NVSHMEM_SIGNAL_SET, pe);
    if (threadIdx.x == 0) {
      const volatile unsigned long* const word = mine;
      u64 looks = 0;
      while (*word < round && looks < spin_limit) ++looks;
      came = *word >= round ? 1 : 0;
      // As NVSHMEM has it, so that what came before the signal is seen; before a word alone nothing did.
      if (came != 0 && scope != kWord) nvshmem_signal_wait_until(reinterpret_cast<uint64_t*>(mine), NVSHMEM_CMP_GE, round);
      if (came == 0) *static_cast<volatile u64*>(gave_up) = round;
    }
    __syncthreads();
    if (came == 0) return;
    if (starter == 0 && puts) lg_put_signal(scope, target, source, bytes, theirs, round, NVSHMEM_SIGNAL_SET, pe);
  }
  if (threadIdx.x == 0) nvshmem_quiet();
}

}  // extern "C"
