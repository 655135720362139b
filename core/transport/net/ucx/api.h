// UCX's functions (libucp, UCP API 1.x) as one table over a library opened at run time.
//
// No header of UCX is needed to build: types are restated here, with the version that they are of, and
// tests/core/vendor_headers/ compiles them against ucp/api/ucp.h. Structures are passed with a mask of the fields that
// are set, so that a library reads none that it does not know.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/symbols.h"

namespace linkgauge::ucx {

using Status = std::int8_t;  // ucs_status_t, a packed enumeration
using Context = void*;       // ucp_context_h
using Worker = void*;        // ucp_worker_h
using Endpoint = void*;      // ucp_ep_h
using Memory = void*;        // ucp_mem_h
using RemoteKey = void*;     // ucp_rkey_h
// ucs_status_ptr_t: nullptr where the operation is over, a request, or the negative status as an address.
using StatusPointer = void*;

inline constexpr Status kOk = 0;
inline constexpr int kLastError = -100;  // UCS_ERR_LAST

// The oldest API that has all that is required below (1.10: memory type and flags of a request, worker flags).
inline constexpr unsigned kApiMajor = 1;
inline constexpr unsigned kApiMinor = 10;

inline constexpr std::uint64_t kFeatureTag = 1 << 0;  // UCP_FEATURE_TAG
inline constexpr std::uint64_t kFeatureRma = 1 << 1;  // UCP_FEATURE_RMA

struct Parameters {  // ucp_params_t as of 1.10
  enum : std::uint64_t { kFeatures = 1 << 0, kEstimatedEndpoints = 1 << 6, kEstimatedOnNode = 1 << 7 };
  std::uint64_t field_mask = 0;
  std::uint64_t features = 0;
  std::size_t request_size = 0;
  void (*request_init)(void*) = nullptr;
  void (*request_cleanup)(void*) = nullptr;
  std::uint64_t tag_sender_mask = 0;
  int mt_workers_shared = 0;
  std::size_t estimated_num_eps = 0;
  std::size_t estimated_num_ppn = 0;
};

struct WorkerParameters {  // ucp_worker_params_t as of 1.10
  enum : std::uint64_t { kThreadMode = 1 << 0, kFlags = 1 << 5 };
  enum : int { kThreadSerialized = 1 };             // UCS_THREAD_MODE_SERIALIZED
  enum : std::uint64_t { kIgnoreRequestLeak = 1 };  // UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK
  std::uint64_t field_mask = 0;
  int thread_mode = 0;
  std::uint64_t cpu_mask[16] = {};
  unsigned events = 0;
  void* user_data = nullptr;
  int event_fd = -1;
  std::uint64_t flags = 0;
};

struct EndpointParameters {  // ucp_ep_params_t as of 1.10; what comes behind `address` is never set
  enum : std::uint64_t { kRemoteAddress = 1 << 0 };
  std::uint64_t field_mask = 0;
  const void* address = nullptr;
  unsigned char unset[256] = {};
};

struct RequestParameters {  // ucp_request_param_t as of 1.13
  enum : std::uint32_t {
    kCallback = 1 << 1,
    kUserData = 1 << 2,
    kMemoryType = 1 << 6,
    kMemory = 1 << 8,      // since 1.13
    kMultiSend = 1 << 19,  // since 1.13: for the bandwidth of several under way, not the latency of one
  };
  std::uint32_t op_attr_mask = 0;
  std::uint32_t flags = 0;
  void* request = nullptr;
  union {
    void (*send)(void* request, Status status, void* user_data) = nullptr;
    void (*receive)(void* request, Status status, const void* tag_info, void* user_data);
  } callback;
  std::uint64_t datatype = 0;
  void* user_data = nullptr;
  void* reply_buffer = nullptr;
  int memory_type = 0;
  void* receive_info = nullptr;
  Memory memory = nullptr;
};

inline constexpr unsigned kFirstMinorWithMemory = 13;
// ucs_memory_type_t, also bits of ContextFacts::memory_types.
inline constexpr int kHostMemory = 0;
inline constexpr int kCudaMemory = 1;
inline constexpr int kCudaManagedMemory = 2;
inline constexpr int kRocmMemory = 3;
inline constexpr int kRocmManagedMemory = 4;

struct MapParameters {  // ucp_mem_map_params_t as of 1.10
  enum : std::uint64_t { kAddress = 1 << 0, kLength = 1 << 1, kMemoryType = 1 << 4 };
  std::uint64_t field_mask = 0;
  void* address = nullptr;
  std::size_t length = 0;
  unsigned flags = 0;
  unsigned protection = 0;
  int memory_type = 0;
};

struct ContextFacts {  // ucp_context_attr_t as of 1.10; room for what later versions have behind it
  enum : std::uint64_t { kMemoryTypes = 1 << 2 };
  std::uint64_t field_mask = 0;
  std::size_t request_size = 0;
  int thread_mode = 0;
  std::uint64_t memory_types = 0;
  unsigned char unread[256] = {};
};

struct Way {  // ucp_transport_entry_t
  const char* transport = nullptr;
  const char* device = nullptr;
};
struct Ways {  // ucp_transports_t
  Way* entries = nullptr;
  unsigned count = 0;
  std::size_t entry_bytes = sizeof(Way);
};
struct EndpointFacts {  // ucp_ep_attr_t as of 1.13
  enum : std::uint64_t { kTransports = 1 << 3 };
  std::uint64_t field_mask = 0;
  char name[32] = {};
  sockaddr_storage local = {};
  sockaddr_storage remote = {};
  Ways transports;
  void* user_data = nullptr;
};

// REQUIRED(name, type): the library is too old without it. OPTIONAL(name, type): nullptr where absent.
#define LINKGAUGE_UCX_API(REQUIRED, OPTIONAL)                                                                     \
  REQUIRED(ucp_get_version, void(unsigned*, unsigned*, unsigned*))                                                \
  OPTIONAL(ucp_config_read, Status(const char*, const char*, void**))                                             \
  OPTIONAL(ucp_config_modify, Status(void*, const char*, const char*))                                            \
  OPTIONAL(ucp_config_release, void(void*))                                                                       \
  REQUIRED(ucp_init_version, Status(unsigned, unsigned, const Parameters*, const void*, Context*))                \
  REQUIRED(ucp_cleanup, void(Context))                                                                            \
  REQUIRED(ucp_context_query, Status(Context, ContextFacts*))                                                     \
  REQUIRED(ucp_worker_create, Status(Context, const WorkerParameters*, Worker*))                                  \
  REQUIRED(ucp_worker_destroy, void(Worker))                                                                      \
  REQUIRED(ucp_worker_get_address, Status(Worker, void**, std::size_t*))                                          \
  REQUIRED(ucp_worker_release_address, void(Worker, void*))                                                       \
  REQUIRED(ucp_worker_progress, unsigned(Worker))                                                                 \
  REQUIRED(ucp_worker_fence, Status(Worker))                                                                      \
  REQUIRED(ucp_ep_create, Status(Worker, const EndpointParameters*, Endpoint*))                                   \
  REQUIRED(ucp_ep_close_nbx, StatusPointer(Endpoint, const RequestParameters*))                                   \
  REQUIRED(ucp_ep_flush_nbx, StatusPointer(Endpoint, const RequestParameters*))                                   \
  OPTIONAL(ucp_ep_query, Status(Endpoint, EndpointFacts*))                                                        \
  REQUIRED(ucp_tag_send_nbx,                                                                                      \
           StatusPointer(Endpoint, const void*, std::size_t, std::uint64_t, const RequestParameters*))            \
  REQUIRED(ucp_tag_recv_nbx,                                                                                      \
           StatusPointer(Worker, void*, std::size_t, std::uint64_t, std::uint64_t, const RequestParameters*))     \
  REQUIRED(ucp_put_nbx,                                                                                           \
           StatusPointer(Endpoint, const void*, std::size_t, std::uint64_t, RemoteKey, const RequestParameters*)) \
  REQUIRED(ucp_get_nbx,                                                                                           \
           StatusPointer(Endpoint, void*, std::size_t, std::uint64_t, RemoteKey, const RequestParameters*))       \
  REQUIRED(ucp_request_check_status, Status(void*))                                                               \
  REQUIRED(ucp_request_free, void(void*))                                                                         \
  REQUIRED(ucp_mem_map, Status(Context, const MapParameters*, Memory*))                                           \
  REQUIRED(ucp_mem_unmap, Status(Context, Memory))                                                                \
  REQUIRED(ucp_rkey_pack, Status(Context, Memory, void**, std::size_t*))                                          \
  REQUIRED(ucp_rkey_buffer_release, void(void*))                                                                  \
  REQUIRED(ucp_ep_rkey_unpack, Status(Endpoint, const void*, RemoteKey*))                                         \
  REQUIRED(ucp_rkey_destroy, void(RemoteKey))                                                                     \
  REQUIRED(ucs_status_string, const char*(Status))

struct Table {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_UCX_API)
};

inline bool is_error(StatusPointer pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) >= static_cast<std::uintptr_t>(std::intptr_t{kLastError});
}
inline Status status_of(StatusPointer error) { return static_cast<Status>(reinterpret_cast<std::intptr_t>(error)); }

// That which the process has already; else libucp.so.0 in the folders, then by the loader's own search.
class Library : public OneLibrary<Library, Table> {
 public:
  std::string version() const;
  bool at_least(unsigned minor) const { return major_ > kApiMajor || minor_ >= minor; }

  // Throw RuntimeCallError with UCX's own words where a call failed.
  void check(Status status, const char* call) const {
    if (status != kOk) [[unlikely]] {
      fail(status, call);
    }
  }
  [[noreturn]] void fail(Status status, const char* call) const;

 private:
  friend class OneLibrary<Library, Table>;
  explicit Library(const std::vector<std::string>& folders);
  unsigned major_ = 0;
  unsigned minor_ = 0;
  unsigned patch_ = 0;
};

}  // namespace linkgauge::ucx
