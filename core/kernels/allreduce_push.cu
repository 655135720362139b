// Allreduce by pushing, as push.h describes it: a kernel a datatype, so that a launch fetches few instructions.

namespace linkgauge {

struct PushExec : GridExec {
  // Past the multiprocessor's own cache, each half whole; ordered with nothing else.
  __device__ __forceinline__ push::Line load_line(const push::Line* place) const {
    push::Line line;
#if LG_IS_HIP
    line.halves[0] = __hip_atomic_load(&place->halves[0], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    line.halves[1] = __hip_atomic_load(&place->halves[1], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(line.halves[0]), "=l"(line.halves[1])
                 : "l"(__cvta_generic_to_global(place))
                 : "memory");
#endif
    return line;
  }
  __device__ __forceinline__ void store_line(push::Line* place, const push::Line& line) const {
#if LG_IS_HIP
    __hip_atomic_store(&place->halves[0], line.halves[0], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    __hip_atomic_store(&place->halves[1], line.halves[1], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(place)),
                 "l"(line.halves[0]), "l"(line.halves[1])
                 : "memory");
#endif
  }
  // Whether it is so for any thread of the block; a barrier.
  __device__ __forceinline__ bool any(bool mine) const { return __syncthreads_or(mine ? 1 : 0) != 0; }
  // One more; returns how many there were.
  __device__ __forceinline__ u64 count(u64* place) const {
#if LG_IS_HIP
    return __hip_atomic_fetch_add(place, 1ULL, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
#else
    u64 before;
    asm volatile("atom.acq_rel.gpu.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(place) : "memory");
    return before;
#endif
  }
};

template <u32 kDatatype>
__device__ __forceinline__ void allreduce_by_pushing(const push::Job& job) {
  PushExec exec = {{nullptr}};
  push::allreduce<kDatatype>(exec, job);
}

}  // namespace linkgauge

// The ranks' places are indexed where the launch has put them, not in a copy of each thread's own.
#if LG_IS_HIP
#define LG_PUSH_JOB const linkgauge::push::Job
#else
#define LG_PUSH_JOB const __grid_constant__ linkgauge::push::Job
#endif
#define LG_PUSH_KERNEL __global__ void __launch_bounds__(512)

extern "C" {

LG_PUSH_KERNEL lg_allreduce_push_int8(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kInt8>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_uint8(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kUint8>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_int32(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kInt32>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_uint32(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kUint32>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_int64(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kInt64>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_uint64(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kUint64>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_float16(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kFloat16>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_bfloat16(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kBfloat16>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_float32(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kFloat32>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_float64(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kFloat64>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_float8_e4m3(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kFloat8E4m3>(job);
}

LG_PUSH_KERNEL lg_allreduce_push_float8_e5m2(LG_PUSH_JOB job) {
  linkgauge::allreduce_by_pushing<linkgauge::values::kFloat8E5m2>(job);
}

}  // extern "C"
