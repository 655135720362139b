// The types of NVSHMEM's host headers that the stand-in names, for building where these are not.
#pragma once

#include <cstddef>
#include <cstdint>

using nvshmem_team_t = std::int32_t;
struct nvshmem_team_config_t;
struct half {
  std::uint16_t bits;
};
struct __nv_bfloat16 {
  std::uint16_t bits;
};
constexpr nvshmem_team_t NVSHMEM_TEAM_INVALID = -1;
constexpr nvshmem_team_t NVSHMEM_TEAM_WORLD = 0;
using cudaStream_t = struct CUstream_st*;
using CUmodule = struct CUmod_st*;
struct nvshmemx_uniqueid_t {
  int version;
  char internal[124];
};
struct nvshmemx_uniqueid_args_t {
  int version;
  nvshmemx_uniqueid_t* id;
  int myrank;
  int nranks;
};
struct nvshmemx_init_args_t {
  int version;
  nvshmemx_uniqueid_args_t uid_args;
  char content[96];
};
struct nvshmemx_init_attr_t {
  int version;
  void* mpi_comm;
  nvshmemx_init_args_t args;
};
constexpr unsigned NVSHMEMX_INIT_WITH_UNIQUEID = 8;
constexpr int NVSHMEM_STATUS_IS_INITIALIZED = 2;
constexpr int NVSHMEM_STATUS_LIMITED_MPG = 3;
constexpr int NVSHMEM_SIGNAL_SET = 9;
constexpr int NVSHMEM_SIGNAL_ADD = 10;
constexpr int NVSHMEM_CMP_GE = 5;
