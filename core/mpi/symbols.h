// MPI's functions by name and signature, for either kind of handle (int or pointer). Plain C types cross this line.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/errors.h"
#include "base/symbols.h"

namespace linkgauge {

// A collective in its three forms: it blocks, it gives a request, it gives one that is started again and again.
template <typename Handle, typename... Arguments>
struct MpiCollectiveSymbols {
  const char* name = "";
  int (*blocking)(Arguments...) = nullptr;
  int (*nonblocking)(Arguments..., Handle*) = nullptr;         // nullptr: the library has none
  int (*persistent)(Arguments..., Handle, Handle*) = nullptr;  // MPI 4; nullptr likewise
  int operator()(Arguments... arguments) const { return blocking(arguments...); }
};

// REQUIRED and OPTIONAL(member, function, signature); FORMS(member, name without MPI_, arguments): a collective. H: a
// handle.
#define LINKGAUGE_MPI_API(REQUIRED, OPTIONAL, FORMS)                                                                   \
  REQUIRED(comm_rank, MPI_Comm_rank, int(H, int*))                                                                     \
  REQUIRED(comm_split, MPI_Comm_split, int(H, int, int, H*))                                                           \
  REQUIRED(comm_free, MPI_Comm_free, int(H*))                                                                          \
  REQUIRED(comm_set_errhandler, MPI_Comm_set_errhandler, int(H, H))                                                    \
  REQUIRED(error_string, MPI_Error_string, int(int, char*, int*))                                                      \
  REQUIRED(get_library_version, MPI_Get_library_version, int(char*, int*))                                             \
  REQUIRED(type_contiguous, MPI_Type_contiguous, int(int, H, H*))                                                      \
  REQUIRED(type_create_hvector, MPI_Type_create_hvector, int(int, int, Aint, H, H*))                                   \
  REQUIRED(type_commit, MPI_Type_commit, int(H*))                                                                      \
  REQUIRED(type_free, MPI_Type_free, int(H*))                                                                          \
  REQUIRED(send, MPI_Send, int(const void*, int, H, int, int, H))                                                      \
  REQUIRED(recv, MPI_Recv, int(void*, int, H, int, int, H, void*))                                                     \
  REQUIRED(isend, MPI_Isend, int(const void*, int, H, int, int, H, H*))                                                \
  REQUIRED(irecv, MPI_Irecv, int(void*, int, H, int, int, H, H*))                                                      \
  REQUIRED(waitall, MPI_Waitall, int(int, H*, void*))                                                                  \
  REQUIRED(testall, MPI_Testall, int(int, H*, int*, void*))                                                            \
  REQUIRED(cancel, MPI_Cancel, int(H*))                                                                                \
  REQUIRED(iprobe, MPI_Iprobe, int(int, int, H, int*, void*))                                                          \
  FORMS(barrier, Barrier, H)                                                                                           \
  FORMS(bcast, Bcast, void*, int, H, int, H)                                                                           \
  FORMS(reduce, Reduce, const void*, void*, int, H, H, int, H)                                                         \
  FORMS(allreduce, Allreduce, const void*, void*, int, H, H, H)                                                        \
  FORMS(reduce_scatter_block, Reduce_scatter_block, const void*, void*, int, H, H, H)                                  \
  FORMS(allgather, Allgather, const void*, int, H, void*, int, H, H)                                                   \
  FORMS(gather, Gather, const void*, int, H, void*, int, H, int, H)                                                    \
  FORMS(scatter, Scatter, const void*, int, H, void*, int, H, int, H)                                                  \
  FORMS(alltoall, Alltoall, const void*, int, H, void*, int, H, H)                                                     \
  FORMS(alltoallv, Alltoallv, const void*, const int*, const int*, H, void*, const int*, const int*, H, H)             \
  REQUIRED(win_create, MPI_Win_create, int(void*, Aint, int, H, H, H*))                                                \
  REQUIRED(win_free, MPI_Win_free, int(H*))                                                                            \
  REQUIRED(win_set_errhandler, MPI_Win_set_errhandler, int(H, H))                                                      \
  REQUIRED(win_lock_all, MPI_Win_lock_all, int(int, H))                                                                \
  REQUIRED(win_unlock_all, MPI_Win_unlock_all, int(H))                                                                 \
  REQUIRED(win_flush, MPI_Win_flush, int(int, H))                                                                      \
  REQUIRED(win_sync, MPI_Win_sync, int(H))                                                                             \
  REQUIRED(put, MPI_Put, int(const void*, int, H, int, Aint, int, H, H))                                               \
  REQUIRED(get, MPI_Get, int(void*, int, H, int, Aint, int, H, H))                                                     \
  REQUIRED(dist_graph_create_adjacent, MPI_Dist_graph_create_adjacent,                                                 \
           int(H, int, const int*, const int*, int, const int*, const int*, H, int, H*))                               \
  FORMS(neighbor_alltoallv, Neighbor_alltoallv, const void*, const int*, const int*, H, void*, const int*, const int*, \
        H, H)                                                                                                          \
  REQUIRED(startall, MPI_Startall, int(int, H*))                                                                       \
  REQUIRED(request_free, MPI_Request_free, int(H*))                                                                    \
  OPTIONAL(query_cuda_support, MPIX_Query_cuda_support, int())                                                         \
  OPTIONAL(query_rocm_support, MPIX_Query_rocm_support, int())                                                         \
  OPTIONAL(query_hip_support, MPIX_Query_hip_support, int())

template <typename Handle>
struct MpiSymbols {
  using H = Handle;
  using Aint = std::intptr_t;

#define LINKGAUGE_MPI_MEMBER(member, name, ...) Symbol<__VA_ARGS__> member{nullptr, #name};
#define LINKGAUGE_MPI_COLLECTIVE(member, name, ...) MpiCollectiveSymbols<H, __VA_ARGS__> member{"MPI_" #name};
  LINKGAUGE_MPI_API(LINKGAUGE_MPI_MEMBER, LINKGAUGE_MPI_MEMBER, LINKGAUGE_MPI_COLLECTIVE)
#undef LINKGAUGE_MPI_MEMBER
#undef LINKGAUGE_MPI_COLLECTIVE

  std::vector<SymbolEntry> entries() {
    const auto slot = [](auto& function) { return reinterpret_cast<void**>(&function); };
#define LINKGAUGE_MPI_REQUIRED(member, name, ...) {#name, slot(member.function), true},
#define LINKGAUGE_MPI_OPTIONAL(member, name, ...) {#name, slot(member.function), false},
// Open MPI 4 has persistent forms as an extension.
#define LINKGAUGE_MPI_FORMS(member, name, ...)                                                     \
  {"MPI_" #name, slot(member.blocking), true}, {"MPI_I" #member, slot(member.nonblocking), false}, \
      {"MPI_" #name "_init", slot(member.persistent), false}, {"MPIX_" #name "_init", slot(member.persistent), false},
    return {LINKGAUGE_MPI_API(LINKGAUGE_MPI_REQUIRED, LINKGAUGE_MPI_OPTIONAL, LINKGAUGE_MPI_FORMS)};
#undef LINKGAUGE_MPI_REQUIRED
#undef LINKGAUGE_MPI_OPTIONAL
#undef LINKGAUGE_MPI_FORMS
  }

  // Throws Unsupported naming what the library lacks.
  static MpiSymbols load(const SharedLibrary& library) {
    MpiSymbols symbols;
    if (const std::string missing = bind_symbols(library, symbols.entries()); !missing.empty())
      throw Unsupported("the MPI library " + library.path() + " has no function " + missing);
    return symbols;
  }
};

}  // namespace linkgauge
