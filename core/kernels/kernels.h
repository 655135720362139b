// The kernels by name and the layout of their arguments, for the host's (device/host_kernels.cpp) and the device's
// (kernels/*.cu text).
//
// DeviceRuntime::launch takes an array of pointers to parameters, one pointer per parameter in the order listed here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/datatypes.h"

namespace linkgauge {

// What a check found. Written by the kernel `check`; zero it (and set first_bad_offset to ~0) before.
struct CheckResult {
  std::uint64_t bad_bytes;         // how many bytes differ
  std::uint64_t first_bad_offset;  // bytes from the start of the checked range; ~0: none
  std::uint64_t expected;          // the element at first_bad_offset, as raw bits
  std::uint64_t found;
};

// fill(void* target, u64 bytes, u32 datatype, u32 op, u64 seed, i32 rank, i32 ranks, u64 offset_bytes)
//   Writes the pattern of `rank` at `offset_bytes` of its stream. op = kRawBytes: any bits; else small values that
//   reduce exactly.
inline constexpr char kKernelFill[] = "lg_fill";
// check(const void* data, u64 bytes, u32 datatype, u32 op, u64 seed, i32 rank, i32 ranks, u64 offset_bytes,
// CheckResult* result)
//   op = kRawBytes: data must be what fill wrote for `rank`; else the reduction by op over ranks 0..ranks-1. The result
//   is in memory that the kernel can write (device or pinned).
inline constexpr char kKernelCheck[] = "lg_check";
// reduce(void* target, const void* const* sources, i32 count, u64 elements, u32 datatype, u32 op)
//   target[i] = op over sources; sources is an array in memory that the kernel can read; target may be one of them.
inline constexpr char kKernelReduce[] = "lg_reduce";
// allreduce(void* const* lists, i32 ranks, i32 rank, u64 elements, u32 datatype, u32 op, u32 mode, u64 epoch,
// u64 patience, u64* failure)   direct.h says what; the same grid on every rank, all of it on the device at once, at
// most kMostAllreduceThreads a block
inline constexpr char kKernelAllreduce[] = "lg_allreduce";
inline constexpr unsigned kMostAllreduceThreads = 512;
// allreduce_push_DATATYPE(push::Job job)   push.h says what; the grid as for allreduce. By Datatype's numbers:
#define LINKGAUGE_KERNEL_NAME(constant, name, bytes) "lg_allreduce_push_" name,
inline constexpr const char* kKernelsAllreducePush[] = {LINKGAUGE_DATATYPES(LINKGAUGE_KERNEL_NAME)};
#undef LINKGAUGE_KERNEL_NAME
// copy(void* target, const void* source, u64 bytes)   load and store, 16 bytes a thread where aligned
//   Any grid: blocks take tiles in turn. The variants differ in how many words a thread has under way (lg_copy: 4);
//   device/kernel_tuning.h chooses among them and the grids by measurement.
inline constexpr char kKernelCopy[] = "lg_copy";
inline constexpr char kKernelCopyU1[] = "lg_copy_u1";    // GPUs only
inline constexpr char kKernelCopyU2[] = "lg_copy_u2";    // GPUs only
inline constexpr char kKernelCopyU8[] = "lg_copy_u8";    // GPUs only
inline constexpr char kKernelCopyU16[] = "lg_copy_u16";  // GPUs only; at most 512 threads
// copy_bulk(void* target, const void* source, u64 bytes)   the SM's bulk copies, sm_90 and newer only; one warp a
// block, all of the launch's dynamic shared memory is its ring
inline constexpr char kKernelCopyBulk[] = "lg_copy_bulk";
// both_ways(void* target, const void* source, void* target_back, const void* source_back, u64 bytes)
//   Two copies at once, whose share of the device is even: warps take either by turns. Blocks of whole pairs of warps.
inline constexpr char kKernelBothWays[] = "lg_both_ways";  // a thread has 4 words under way; in the other 8
inline constexpr char kKernelBothWaysU8[] = "lg_both_ways_u8";
// both_ways_repeated(void* target, const void* source, void* target_back, const void* source_back, u64 bytes, u64
// times, u64 target_step, u64 source_step)
//   The same of whole words of 16 bytes, each copied so many times in a row. Of targets and of sources every step-th
//   chunk is meant, so that both ways can share a pair of buffers. Blocks of whole pairs of warps, any number.
inline constexpr char kKernelBothWaysRepeated[] = "lg_both_ways_repeated";
inline constexpr std::size_t kChunkOfBothWays = 512;  // a warp's words of 16 bytes; memory.cuh has the same
// gemm(float* product, const float* left, const float* right, u64 side)   square matrices by rows, side a multiple of
// 64; blocks of kGemmThreads, any number of them
inline constexpr char kKernelGemm[] = "lg_gemm";
inline constexpr unsigned kGemmThreads = 256;
// empty()   the floor of a launch
inline constexpr char kKernelEmpty[] = "lg_empty";
// chase(const void* start, u64 loads, void** end)   follows `loads` pointers
inline constexpr char kKernelChase[] = "lg_chase";
// chase_in_turn(const void* start, u64 loads, void** ends, u32 walker)   as chase, walked by block `walker` of the grid
inline constexpr char kKernelChaseInTurn[] = "lg_chase_in_turn";
// flag_pingpong(u64* mine, u64* theirs, u64 first, u64 rounds, i32 starter, u64 spin_limit, u64* gave_up,
// i32 relaxed)
//   Rounds first to first + rounds - 1; *gave_up becomes the round that did not come.
inline constexpr char kKernelFlagPingpong[] = "lg_flag_pingpong";
// gate(const volatile u64* open, u64 value, u64 spin_limit, u64* gave_up)   waits until *open >= value, or gives up
inline constexpr char kKernelGate[] = "lg_gate";

inline constexpr std::uint32_t kRawBytes = 255;  // for `op`: no reduction, the data are bytes

}  // namespace linkgauge
