// NVSHMEM's host library (3.x) as one table over a library opened at run time.
//
// No header of NVSHMEM is needed to build: types are restated here, and tests/core/vendor_headers/ compiles the table
// against nvshmem.h's host part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/case_spec.h"
#include "base/symbols.h"

namespace linkgauge::nvshmem {

using Status = int;  // 0: done
using Stream = void*;
using Module = void*;  // CUmodule
using Signal = std::uint64_t;
using Team = std::int32_t;  // nvshmem_team_t

inline constexpr unsigned kInitWithUniqueId = 1U << 3;  // NVSHMEMX_INIT_WITH_UNIQUEID
inline constexpr int kSeveralPesInTurn = 3;             // NVSHMEM_STATUS_LIMITED_MPG: they share a GPU without MPS
inline constexpr int kAdd = 10;                         // NVSHMEM_SIGNAL_ADD
inline constexpr int kAtLeast = 5;                      // NVSHMEM_CMP_GE
inline constexpr Team kNoTeam = -1;                     // NVSHMEM_TEAM_INVALID
inline constexpr Team kTeamOfAll = 0;                   // NVSHMEM_TEAM_WORLD

// A type's version as NVSHMEM writes it: which layout, and how many bytes. The first layout is one that all of 3.x
// take.
template <typename Layout>
inline constexpr int kFirstLayout = (1 << 16) + static_cast<int>(sizeof(Layout));

struct UniqueId {  // nvshmemx_uniqueid_v1
  int version = 0;
  char internal[124] = {};
};
struct UniqueIdArguments {  // nvshmemx_uniqueid_args_v1
  int version = 0;
  UniqueId* id = nullptr;
  int rank = -1;
  int ranks = -1;
};
struct InitArguments {  // nvshmemx_init_args_v1
  int version = 0;
  UniqueIdArguments unique_id;
  char content[96] = {};
};
struct InitAttributes {  // nvshmemx_init_attr_v1
  int version = 0;
  void* mpi_communicator = nullptr;
  InitArguments arguments;
};

// REQUIRED(name, type): the library is too old without it; OPTIONAL: its variants are skipped.
#define LINKGAUGE_NVSHMEM_API(REQUIRED, OPTIONAL)                                                                      \
  REQUIRED(nvshmemx_vendor_get_version_info, void(int*, int*, int*))                                                   \
  REQUIRED(nvshmemx_get_uniqueid, Status(UniqueId*))                                                                   \
  REQUIRED(nvshmemx_set_attr_uniqueid_args, Status(int, int, const UniqueId*, InitAttributes*))                        \
  REQUIRED(nvshmemx_hostlib_init_attr, Status(unsigned, InitAttributes*))                                              \
  REQUIRED(nvshmemx_init_status, int())                                                                                \
  REQUIRED(nvshmemx_hostlib_finalize, void())                                                                          \
  REQUIRED(nvshmemx_cumodule_init, Status(Module))                                                                     \
  REQUIRED(nvshmemx_cumodule_finalize, Status(Module))                                                                 \
  REQUIRED(nvshmem_malloc, void*(std::size_t))                                                                         \
  REQUIRED(nvshmem_free, void(void*))                                                                                  \
  REQUIRED(nvshmem_ptr, void*(const void*, int))                                                                       \
  REQUIRED(nvshmemx_putmem_on_stream, void(void*, const void*, std::size_t, int, Stream))                              \
  REQUIRED(nvshmemx_getmem_on_stream, void(void*, const void*, std::size_t, int, Stream))                              \
  REQUIRED(nvshmemx_putmem_signal_on_stream, void(void*, const void*, std::size_t, Signal*, Signal, int, int, Stream)) \
  REQUIRED(nvshmemx_signal_op_on_stream, void(Signal*, Signal, int, int, Stream))                                      \
  REQUIRED(nvshmemx_signal_wait_until_on_stream, void(Signal*, int, Signal, Stream))                                   \
  REQUIRED(nvshmemx_quiet_on_stream, void(Stream))                                                                     \
  OPTIONAL(nvshmem_team_split_strided, Status(Team, int, int, int, const void*, long, Team*))                          \
  OPTIONAL(nvshmem_team_destroy, void(Team))                                                                           \
  OPTIONAL(nvshmemx_barrier_on_stream, Status(Team, Stream))                                                           \
  OPTIONAL(nvshmemx_alltoallmem_on_stream, Status(Team, void*, const void*, std::size_t, Stream))                      \
  OPTIONAL(nvshmemx_fcollectmem_on_stream, Status(Team, void*, const void*, std::size_t, Stream))                      \
  OPTIONAL(nvshmemx_broadcastmem_on_stream, Status(Team, void*, const void*, std::size_t, int, Stream))

// OF(datatype, NVSHMEM's name, the type as its headers write it): what its collectives reduce.
#define LINKGAUGE_NVSHMEM_DATATYPES(OF)  \
  OF(kInt8, int8, int8_t)                \
  OF(kUint8, uint8, uint8_t)             \
  OF(kInt32, int32, int32_t)             \
  OF(kUint32, uint32, uint32_t)          \
  OF(kInt64, int64, int64_t)             \
  OF(kUint64, uint64, uint64_t)          \
  OF(kFloat16, half, half)               \
  OF(kBfloat16, bfloat16, __nv_bfloat16) \
  OF(kFloat32, float, float)             \
  OF(kFloat64, double, double)

// nvshmemx_<datatype>_<op>_reduce_on_stream and nvshmemx_<datatype>_<op>_reducescatter_on_stream.
using Reduction = Status(Team, void*, const void*, std::size_t, Stream);

struct Table {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_NVSHMEM_API)
};

// As NVSHMEM's functions and headers name it; "": they do not.
struct DatatypeNames {
  std::string_view word;
  std::string_view type;
};
DatatypeNames names_of(Datatype datatype);

// In the folders, where wheels put it, then by the loader's own search.
class Library : public OneLibrary<Library, Table> {
 public:
  std::string version() const;
  // A function that the table lacks or may lack; nullptr: it has none by that name.
  void* find(const std::string& name) const { return library_.find(name.c_str()); }

  // Throws RuntimeCallError where a call says that it failed; on stderr NVSHMEM has said why.
  void check(Status status, const char* call, int device) const;

 private:
  friend class OneLibrary<Library, Table>;
  explicit Library(const std::vector<std::string>& folders);
};

}  // namespace linkgauge::nvshmem
