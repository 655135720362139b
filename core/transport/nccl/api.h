// NCCL's functions (RCCL has the same under the same names, oneCCL most of them under its own) as one table over a
// library opened at run time.
//
// No header of NCCL is needed to build: types are restated here, and tests/core/vendor_headers/ compiles the table
// against nccl.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/case_spec.h"
#include "base/symbols.h"

namespace linkgauge::ccl {

using Result = int;  // ncclResult_t
using Communicator = void*;
using Stream = void*;
using Window = void*;
using Type = int;  // ncclDataType_t
using Op = int;    // ncclRedOp_t
struct UniqueId {
  char internal[128];
};
struct Config;  // this and the next three: transport/nccl/structures.h
struct CallConfig;
struct Properties;
struct DeviceRequirements;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidArgument = 4;
inline constexpr Result kInvalidUsage = 5;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;
inline constexpr Type kBytes = 1;           // ncclUint8: what is not reduced is bytes
inline constexpr int kWindowSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
// By Datatype and ReduceOp of case_spec.h: ncclDataType_t and ncclRedOp_t.
inline constexpr Type kDatatypes[] = {0, 1, 2, 3, 4, 5, 6, 9, 7, 8, 10, 11};
inline constexpr Op kOps[] = {0, 1, 3, 2, 4};

// A collective, with what it takes besides; newer libraries also have it with a configuration of its own.
#define LINKGAUGE_CCL_COLLECTIVE(KIND, OPTIONAL, name, ...)                                                            \
  KIND(name, Result(const void*, void*, std::size_t, Type, __VA_OPT__(__VA_ARGS__, ) Communicator, Stream))            \
  OPTIONAL(name##Config, Result(const void*, void*, std::size_t, Type, __VA_OPT__(__VA_ARGS__, ) Communicator, Stream, \
                                const CallConfig*))

// REQUIRED(name, type): the library is too old without it. OPTIONAL(name, type): nullptr where absent.
#define LINKGAUGE_CCL_API(REQUIRED, OPTIONAL)                                              \
  REQUIRED(ncclGetVersion, Result(int*))                                                   \
  REQUIRED(ncclGetUniqueId, Result(UniqueId*))                                             \
  REQUIRED(ncclCommInitRank, Result(Communicator*, int, UniqueId, int))                    \
  OPTIONAL(ncclCommInitRankConfig, Result(Communicator*, int, UniqueId, int, Config*))     \
  REQUIRED(ncclCommDestroy, Result(Communicator))                                          \
  REQUIRED(ncclCommAbort, Result(Communicator))                                            \
  REQUIRED(ncclCommGetAsyncError, Result(Communicator, Result*))                           \
  REQUIRED(ncclGetErrorString, const char*(Result))                                        \
  OPTIONAL(ncclGetLastError, const char*(Communicator))                                    \
  REQUIRED(ncclGroupStart, Result())                                                       \
  REQUIRED(ncclGroupEnd, Result())                                                         \
  REQUIRED(ncclSend, Result(const void*, std::size_t, Type, int, Communicator, Stream))    \
  REQUIRED(ncclRecv, Result(void*, std::size_t, Type, int, Communicator, Stream))          \
  LINKGAUGE_CCL_COLLECTIVE(REQUIRED, OPTIONAL, ncclAllReduce, Op)                          \
  LINKGAUGE_CCL_COLLECTIVE(REQUIRED, OPTIONAL, ncclReduce, Op, int)                        \
  LINKGAUGE_CCL_COLLECTIVE(REQUIRED, OPTIONAL, ncclBroadcast, int)                         \
  LINKGAUGE_CCL_COLLECTIVE(REQUIRED, OPTIONAL, ncclAllGather)                              \
  LINKGAUGE_CCL_COLLECTIVE(REQUIRED, OPTIONAL, ncclReduceScatter, Op)                      \
  LINKGAUGE_CCL_COLLECTIVE(OPTIONAL, OPTIONAL, ncclAlltoAll)                               \
  LINKGAUGE_CCL_COLLECTIVE(OPTIONAL, OPTIONAL, ncclGather, int)                            \
  LINKGAUGE_CCL_COLLECTIVE(OPTIONAL, OPTIONAL, ncclScatter, int)                           \
  OPTIONAL(ncclCommRegister, Result(Communicator, void*, std::size_t, void**))             \
  OPTIONAL(ncclCommDeregister, Result(Communicator, void*))                                \
  OPTIONAL(ncclCommWindowRegister, Result(Communicator, void*, std::size_t, Window*, int)) \
  OPTIONAL(ncclCommWindowDeregister, Result(Communicator, Window))                         \
  OPTIONAL(ncclGetPeerDevicePointer, Result(Window, std::size_t, int, void**))             \
  OPTIONAL(ncclMemAlloc, Result(void**, std::size_t))                                      \
  OPTIONAL(ncclMemFree, Result(void*))                                                     \
  OPTIONAL(ncclCommQueryProperties, Result(Communicator, Properties*))                     \
  OPTIONAL(ncclDevCommCreate, Result(Communicator, const DeviceRequirements*, void*))      \
  OPTIONAL(ncclDevCommDestroy, Result(Communicator, const void*))

struct Table {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_CCL_API)
};

std::string version_text(int code);  // "2.28.9"

enum class Product : std::uint8_t { kNccl, kRccl, kOneccl };
// The collective library of a runtime's devices.
Product product_of(std::string_view runtime);

class Library {
 public:
  // Opens it: `path` when given, else the loader's name in `folders` (where wheels and ROCm put it), then the
  // loader's own search. A library that was opened stays open. Throws Unsupported with the reason.
  static const Library& load(Product product, const std::string& path, const std::vector<std::string>& folders);

  const Table& calls() const { return table_; }
  const std::string& path() const { return library_.path(); }
  int version_code() const { return version_code_; }
  std::string version() const;
  Product product() const { return product_; }
  std::string_view name() const;  // "NCCL", "RCCL", "oneCCL"
  bool rccl() const { return product_ == Product::kRccl; }
  // oneCCL's calls on the CPU are done when they return, and take no stream.
  bool blocks() const { return product_ == Product::kOneccl; }

  // What the ranks of a communicator agree on, made by one; as many bytes as the library has for it.
  Result make_id(std::vector<std::byte>& id) const;
  Result init(Communicator* communicator, int ranks, const std::vector<std::byte>& id, int rank) const;

  // Throws RuntimeCallError with NCCL's own words when `result` is not success.
  void check(Result result, const char* call, Communicator communicator, int device) const;

 private:
  Library(Product product, const std::vector<std::string>& names);

  SharedLibrary library_;
  Table table_;
  int version_code_ = 0;
  Product product_;
  void* make_id_ = nullptr;  // oneCCL's, whose identifier is longer
  void* init_ = nullptr;
};

inline bool is_fp8(Datatype datatype) { return datatype == Datatype::kFloat8E4m3 || datatype == Datatype::kFloat8E5m2; }
inline Type type_of(Datatype datatype) { return kDatatypes[static_cast<std::size_t>(datatype)]; }
inline Op op_of(ReduceOp op) { return kOps[static_cast<std::size_t>(op)]; }
// Empty: the library has the datatype. Otherwise the reason.
std::string supports_datatype(const Library& library, Datatype datatype);

}  // namespace linkgauge::ccl
