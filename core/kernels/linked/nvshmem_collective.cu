// NVSHMEM's collectives called by a kernel, one of them a compilation: LG_NAME, LG_TYPE and LG_CALL, which come before
// this text, say which (transport/nvshmem/kernels.cpp). All together would take minutes.
#include <cuda_awbarrier.h>

#include <cuda/std/cstdint>
#include <cuda/std/type_traits>
// Its headers take these from the host's library, which NVRTC has not.
namespace std {
using cuda::std::is_integral;
using cuda::std::is_signed;
using cuda::std::is_unsigned;
}  // namespace std
// As in nvshmem.cu.
typedef long lg_int64;
typedef unsigned long lg_uint64;
#define int64_t lg_int64
#define uint64_t lg_uint64
#include <device/nvshmem_defines.h>
#include <device/nvshmemx_defines.h>
// What nvshmemx_alltoallmem_block and its like are each a line around; the header that has those has all be compiled.
#include <non_abi/device/coll/defines.cuh>

typedef unsigned long long u64;

template <typename T>
__device__ __forceinline__ void lg_barrier(int team, T*, const T*, u64, int) {
  nvshmemi_barrier_threadgroup<nvshmemi_threadgroup_block>(team);
}
template <typename T>
__device__ __forceinline__ void lg_alltoall(int team, T* target, const T* source, u64 count, int) {
  nvshmemi_alltoall_threadgroup<T, nvshmemi_threadgroup_block>(team, target, source, count);
}
template <typename T>
__device__ __forceinline__ void lg_fcollect(int team, T* target, const T* source, u64 count, int) {
  nvshmemi_fcollect_threadgroup<T, nvshmemi_threadgroup_block>(team, target, source, count * nvshmem_team_my_pe(team),
                                                               count);
}
template <typename T>
__device__ __forceinline__ void lg_broadcast(int team, T* target, const T* source, u64 count, int root) {
  nvshmemi_broadcast_threadgroup<T, nvshmemi_threadgroup_block>(team, target, source, count, root);
}
template <typename T, rdxn_ops_t kOp>
__device__ __forceinline__ void lg_reduce(int team, T* target, const T* source, u64 count, int) {
  nvshmemi_reduce_threadgroup<T, kOp, nvshmemi_threadgroup_block>(team, target, source, count);
}
template <typename T, rdxn_ops_t kOp>
__device__ __forceinline__ void lg_reducescatter(int team, T* target, const T* source, u64 count, int) {
  nvshmemi_reducescatter_threadgroup<T, kOp, nvshmemi_threadgroup_block>(team, target, source,
                                                                         count * nvshmem_team_my_pe(team), count);
}

// One block. `count`: of elements of what each PE gives, of a reduction's result, or of one block; `rounds`: how often.
extern "C" __global__ void __launch_bounds__(512)
    LG_NAME(int team, LG_TYPE* target, const LG_TYPE* source, u64 count, int root, u64 rounds) {
  for (u64 round = 0; round < rounds; ++round) LG_CALL(team, target, source, count, root);
}
