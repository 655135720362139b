// MPI's functions by name and signature, for either kind of handle (int or pointer). Plain C types cross this line.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "errors.h"

namespace linkgauge {

template <typename Handle>
struct MpiSymbols {
  using H = Handle;
  using Aint = std::intptr_t;

  int (*comm_rank)(H, int*);
  int (*comm_size)(H, int*);
  int (*comm_split)(H, int, int, H*);
  int (*comm_free)(H*);
  int (*comm_set_errhandler)(H, H);
  int (*error_string)(int, char*, int*);
  int (*get_library_version)(char*, int*);
  int (*type_contiguous)(int, H, H*);
  int (*type_commit)(H*);
  int (*send)(const void*, int, H, int, int, H);
  int (*recv)(void*, int, H, int, int, H, void*);
  int (*isend)(const void*, int, H, int, int, H, H*);
  int (*irecv)(void*, int, H, int, int, H, H*);
  int (*waitall)(int, H*, void*);
  int (*testall)(int, H*, int*, void*);
  int (*cancel)(H*);
  int (*iprobe)(int, int, H, int*, void*);
  int (*barrier)(H);
  int (*bcast)(void*, int, H, int, H);
  int (*reduce)(const void*, void*, int, H, H, int, H);
  int (*allreduce)(const void*, void*, int, H, H, H);
  int (*reduce_scatter_block)(const void*, void*, int, H, H, H);
  int (*allgather)(const void*, int, H, void*, int, H, H);
  int (*allgatherv)(const void*, int, H, void*, const int*, const int*, H, H);
  int (*gather)(const void*, int, H, void*, int, H, int, H);
  int (*scatter)(const void*, int, H, void*, int, H, int, H);
  int (*alltoall)(const void*, int, H, void*, int, H, H);
  int (*alltoallv)(const void*, const int*, const int*, H, void*, const int*, const int*, H, H);
  int (*win_create)(void*, Aint, int, H, H, H*);
  int (*win_free)(H*);
  int (*win_set_errhandler)(H, H);
  int (*win_lock_all)(int, H);
  int (*win_unlock_all)(H);
  int (*win_flush)(int, H);
  int (*win_sync)(H);
  int (*put)(const void*, int, H, int, Aint, int, H, H);
  int (*get)(void*, int, H, int, Aint, int, H, H);
  // Optional, of some libraries.
  int (*query_cuda_support)();
  int (*query_rocm_support)();
  int (*query_hip_support)();

  // Throws Unsupported naming the first function that the library lacks.
  static MpiSymbols load(void* library, const std::string& path) {
    MpiSymbols s{};
    const auto find = [&](const char* name, auto& function, bool required) {
      void* address = dlsym(library, name);
      if (address == nullptr && required) throw Unsupported("the MPI library " + path + " has no function " + name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    };
    find("MPI_Comm_rank", s.comm_rank, true);
    find("MPI_Comm_size", s.comm_size, true);
    find("MPI_Comm_split", s.comm_split, true);
    find("MPI_Comm_free", s.comm_free, true);
    find("MPI_Comm_set_errhandler", s.comm_set_errhandler, true);
    find("MPI_Error_string", s.error_string, true);
    find("MPI_Get_library_version", s.get_library_version, true);
    find("MPI_Type_contiguous", s.type_contiguous, true);
    find("MPI_Type_commit", s.type_commit, true);
    find("MPI_Send", s.send, true);
    find("MPI_Recv", s.recv, true);
    find("MPI_Isend", s.isend, true);
    find("MPI_Irecv", s.irecv, true);
    find("MPI_Waitall", s.waitall, true);
    find("MPI_Testall", s.testall, true);
    find("MPI_Cancel", s.cancel, true);
    find("MPI_Iprobe", s.iprobe, true);
    find("MPI_Barrier", s.barrier, true);
    find("MPI_Bcast", s.bcast, true);
    find("MPI_Reduce", s.reduce, true);
    find("MPI_Allreduce", s.allreduce, true);
    find("MPI_Reduce_scatter_block", s.reduce_scatter_block, true);
    find("MPI_Allgather", s.allgather, true);
    find("MPI_Allgatherv", s.allgatherv, true);
    find("MPI_Gather", s.gather, true);
    find("MPI_Scatter", s.scatter, true);
    find("MPI_Alltoall", s.alltoall, true);
    find("MPI_Alltoallv", s.alltoallv, true);
    find("MPI_Win_create", s.win_create, true);
    find("MPI_Win_free", s.win_free, true);
    find("MPI_Win_set_errhandler", s.win_set_errhandler, true);
    find("MPI_Win_lock_all", s.win_lock_all, true);
    find("MPI_Win_unlock_all", s.win_unlock_all, true);
    find("MPI_Win_flush", s.win_flush, true);
    find("MPI_Win_sync", s.win_sync, true);
    find("MPI_Put", s.put, true);
    find("MPI_Get", s.get, true);
    find("MPIX_Query_cuda_support", s.query_cuda_support, false);
    find("MPIX_Query_rocm_support", s.query_rocm_support, false);
    find("MPIX_Query_hip_support", s.query_hip_support, false);
    return s;
  }
};

}  // namespace linkgauge
