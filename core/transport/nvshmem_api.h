// NVSHMEM's host library (3.x) as one table over a library opened at run time.
//
// No header of NVSHMEM is needed to build: types are restated here, and tests/core/vendor_headers/ compiles the table
// against nvshmem.h's host part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/shared_library.h"

namespace linkgauge::nvshmem {

using Status = int;  // 0: done
using Stream = void*;
using Module = void*;  // CUmodule
using Signal = std::uint64_t;

inline constexpr unsigned kInitWithUniqueId = 1U << 3;  // NVSHMEMX_INIT_WITH_UNIQUEID
inline constexpr int kSeveralPesInTurn = 3;             // NVSHMEM_STATUS_LIMITED_MPG: they share a GPU without MPS
inline constexpr int kAdd = 10;                         // NVSHMEM_SIGNAL_ADD
inline constexpr int kAtLeast = 5;                      // NVSHMEM_CMP_GE

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

// REQUIRED(name, type): the library is too old without it.
#define LINKGAUGE_NVSHMEM_API(REQUIRED)                                                                                \
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
  REQUIRED(nvshmemx_quiet_on_stream, void(Stream))

struct Table {
#define LINKGAUGE_NVSHMEM_MEMBER(name, ...) \
  using name##_type = __VA_ARGS__;          \
  name##_type* name = nullptr;
  LINKGAUGE_NVSHMEM_API(LINKGAUGE_NVSHMEM_MEMBER)
#undef LINKGAUGE_NVSHMEM_MEMBER
};

class Library {
 public:
  // Opens NVSHMEM: in `folders` (where wheels put it), then by the loader's own search. A process has one. Throws
  // Unsupported with the reason.
  static const Library& load(const std::vector<std::string>& folders);

  const Table& calls() const { return table_; }
  const std::string& path() const { return library_.path(); }
  std::string version() const;

  // Throws RuntimeCallError where a call says that it failed; on stderr NVSHMEM has said why.
  void check(Status status, const char* call, int device) const;

 private:
  explicit Library(const std::vector<std::string>& folders);

  SharedLibrary library_;
  Table table_;
};

}  // namespace linkgauge::nvshmem
