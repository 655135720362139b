// MPI's functions by name and signature, for either kind of handle (int or pointer). Plain C types cross this line.
#pragma once

#include <dlfcn.h>

#include <cctype>
#include <cstdint>
#include <string>

#include "errors.h"

namespace linkgauge {

// A collective in its three forms: it blocks, it gives a request, it gives one that is started again and again.
template <typename Handle, typename... Arguments>
struct MpiCollectiveSymbols {
  int (*blocking)(Arguments...);
  int (*nonblocking)(Arguments..., Handle*);         // nullptr: the library has none
  int (*persistent)(Arguments..., Handle, Handle*);  // MPI 4; nullptr likewise
  int operator()(Arguments... arguments) const { return blocking(arguments...); }
};

template <typename Handle>
struct MpiSymbols {
  using H = Handle;
  using Aint = std::intptr_t;
  template <typename... Arguments>
  using Collective = MpiCollectiveSymbols<H, Arguments...>;

  int (*comm_rank)(H, int*);
  int (*comm_size)(H, int*);
  int (*comm_split)(H, int, int, H*);
  int (*comm_free)(H*);
  int (*comm_set_errhandler)(H, H);
  int (*error_string)(int, char*, int*);
  int (*get_library_version)(char*, int*);
  int (*type_contiguous)(int, H, H*);
  int (*type_create_hvector)(int, int, Aint, H, H*);
  int (*type_commit)(H*);
  int (*type_free)(H*);
  int (*send)(const void*, int, H, int, int, H);
  int (*recv)(void*, int, H, int, int, H, void*);
  int (*isend)(const void*, int, H, int, int, H, H*);
  int (*irecv)(void*, int, H, int, int, H, H*);
  int (*waitall)(int, H*, void*);
  int (*testall)(int, H*, int*, void*);
  int (*cancel)(H*);
  int (*iprobe)(int, int, H, int*, void*);
  Collective<H> barrier;
  Collective<void*, int, H, int, H> bcast;
  Collective<const void*, void*, int, H, H, int, H> reduce;
  Collective<const void*, void*, int, H, H, H> allreduce;
  Collective<const void*, void*, int, H, H, H> reduce_scatter_block;
  Collective<const void*, int, H, void*, int, H, H> allgather;
  int (*allgatherv)(const void*, int, H, void*, const int*, const int*, H, H);
  Collective<const void*, int, H, void*, int, H, int, H> gather;
  Collective<const void*, int, H, void*, int, H, int, H> scatter;
  Collective<const void*, int, H, void*, int, H, H> alltoall;
  Collective<const void*, const int*, const int*, H, void*, const int*, const int*, H, H> alltoallv;
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
  int (*dist_graph_create_adjacent)(H, int, const int*, const int*, int, const int*, const int*, H, int, H*);
  Collective<const void*, const int*, const int*, H, void*, const int*, const int*, H, H> neighbor_alltoallv;
  int (*startall)(int, H*);
  int (*request_free)(H*);
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
    const auto find_forms = [&](const std::string& name, auto& forms) {
      std::string begun = name;
      begun[0] = static_cast<char>(std::tolower(begun[0]));
      find(("MPI_" + name).c_str(), forms.blocking, true);
      find(("MPI_I" + begun).c_str(), forms.nonblocking, false);
      find(("MPI_" + name + "_init").c_str(), forms.persistent, false);
      // Open MPI 4 has it as an extension.
      if (forms.persistent == nullptr) find(("MPIX_" + name + "_init").c_str(), forms.persistent, false);
    };
    find("MPI_Comm_rank", s.comm_rank, true);
    find("MPI_Comm_size", s.comm_size, true);
    find("MPI_Comm_split", s.comm_split, true);
    find("MPI_Comm_free", s.comm_free, true);
    find("MPI_Comm_set_errhandler", s.comm_set_errhandler, true);
    find("MPI_Error_string", s.error_string, true);
    find("MPI_Get_library_version", s.get_library_version, true);
    find("MPI_Type_contiguous", s.type_contiguous, true);
    find("MPI_Type_create_hvector", s.type_create_hvector, true);
    find("MPI_Type_commit", s.type_commit, true);
    find("MPI_Type_free", s.type_free, true);
    find("MPI_Send", s.send, true);
    find("MPI_Recv", s.recv, true);
    find("MPI_Isend", s.isend, true);
    find("MPI_Irecv", s.irecv, true);
    find("MPI_Waitall", s.waitall, true);
    find("MPI_Testall", s.testall, true);
    find("MPI_Cancel", s.cancel, true);
    find("MPI_Iprobe", s.iprobe, true);
    find_forms("Barrier", s.barrier);
    find_forms("Bcast", s.bcast);
    find_forms("Reduce", s.reduce);
    find_forms("Allreduce", s.allreduce);
    find_forms("Reduce_scatter_block", s.reduce_scatter_block);
    find_forms("Allgather", s.allgather);
    find("MPI_Allgatherv", s.allgatherv, true);
    find_forms("Gather", s.gather);
    find_forms("Scatter", s.scatter);
    find_forms("Alltoall", s.alltoall);
    find_forms("Alltoallv", s.alltoallv);
    find("MPI_Win_create", s.win_create, true);
    find("MPI_Win_free", s.win_free, true);
    find("MPI_Win_set_errhandler", s.win_set_errhandler, true);
    find("MPI_Win_lock_all", s.win_lock_all, true);
    find("MPI_Win_unlock_all", s.win_unlock_all, true);
    find("MPI_Win_flush", s.win_flush, true);
    find("MPI_Win_sync", s.win_sync, true);
    find("MPI_Put", s.put, true);
    find("MPI_Get", s.get, true);
    find("MPI_Dist_graph_create_adjacent", s.dist_graph_create_adjacent, true);
    find_forms("Neighbor_alltoallv", s.neighbor_alltoallv);
    find("MPI_Startall", s.startall, true);
    find("MPI_Request_free", s.request_free, true);
    find("MPIX_Query_cuda_support", s.query_cuda_support, false);
    find("MPIX_Query_rocm_support", s.query_rocm_support, false);
    find("MPIX_Query_hip_support", s.query_hip_support, false);
    return s;
  }
};

}  // namespace linkgauge
