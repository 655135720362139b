// NIXL's C API (libnixl_capi, 1.x) as one table over a library opened at run time.
//
// No header of NIXL is needed to build, and the wheels bring none: types are restated here as
// src/bindings/rust/wrapper.h of NIXL 1.5.1 has them. All objects are opaque; the one structure that is passed is
// AgentSettings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/symbols.h"

namespace linkgauge::nixl {

using Status = int;           // nixl_capi_status_t
using Agent = void*;          // nixl_capi_agent_t
using Backend = void*;        // nixl_capi_backend_t
using Options = void*;        // nixl_capi_opt_args_t
using Parameters = void*;     // nixl_capi_params_t
using MemoryTypes = void*;    // nixl_capi_mem_list_t
using Regions = void*;        // nixl_capi_reg_dlist_t
using Descriptors = void*;    // nixl_capi_xfer_dlist_t
using Request = void*;        // nixl_capi_xfer_req_t
using Notifications = void*;  // nixl_capi_notif_map_t
using MemoryType = unsigned;  // nixl_capi_mem_type_t
using Direction = unsigned;   // nixl_capi_xfer_op_t

inline constexpr Status kOk = 0;
inline constexpr Status kInProgress = 1;
inline constexpr MemoryType kDram = 0;
inline constexpr MemoryType kVram = 1;
inline constexpr Direction kRead = 0;
inline constexpr Direction kWrite = 1;

struct AgentSettings {  // nixl_capi_agent_config_t
  bool progress_thread = false;
  bool listen_thread = false;
  std::uint16_t listen_port = 0;
  unsigned synchronized = 0;  // NIXL_CAPI_THREAD_SYNC_NONE
  unsigned workers = 1;
  std::uint64_t progress_delay_us = 0;
  std::uint64_t listen_delay_us = 0;
  bool telemetry = false;
};

// REQUIRED(name, type): the library is too old without it. OPTIONAL(name, type): nullptr where absent.
#define LINKGAUGE_NIXL_API(REQUIRED, OPTIONAL)                                                                         \
  OPTIONAL(nixl_capi_is_stub, bool())                                                                                  \
  REQUIRED(nixl_capi_create_configured_agent, Status(const char*, const AgentSettings*, Agent*))                       \
  REQUIRED(nixl_capi_destroy_agent, Status(Agent))                                                                     \
  REQUIRED(nixl_capi_get_plugin_params, Status(Agent, const char*, MemoryTypes*, Parameters*))                         \
  REQUIRED(nixl_capi_destroy_mem_list, Status(MemoryTypes))                                                            \
  REQUIRED(nixl_capi_destroy_params, Status(Parameters))                                                               \
  REQUIRED(nixl_capi_create_backend, Status(Agent, const char*, Parameters, Backend*))                                 \
  REQUIRED(nixl_capi_destroy_backend, Status(Backend))                                                                 \
  REQUIRED(nixl_capi_create_opt_args, Status(Options*))                                                                \
  REQUIRED(nixl_capi_destroy_opt_args, Status(Options))                                                                \
  REQUIRED(nixl_capi_opt_args_add_backend, Status(Options, Backend))                                                   \
  REQUIRED(nixl_capi_opt_args_set_skip_desc_merge, Status(Options, bool))                                              \
  REQUIRED(nixl_capi_create_reg_dlist, Status(MemoryType, Regions*, bool))                                             \
  REQUIRED(nixl_capi_destroy_reg_dlist, Status(Regions))                                                               \
  REQUIRED(nixl_capi_reg_dlist_add_desc,                                                                               \
           Status(Regions, std::uintptr_t, std::size_t, std::uint64_t, const void*, std::size_t))                      \
  REQUIRED(nixl_capi_register_mem, Status(Agent, Regions, Options))                                                    \
  REQUIRED(nixl_capi_deregister_mem, Status(Agent, Regions, Options))                                                  \
  REQUIRED(nixl_capi_get_local_md, Status(Agent, void**, std::size_t*))                                                \
  REQUIRED(nixl_capi_load_remote_md, Status(Agent, const void*, std::size_t, char**))                                  \
  REQUIRED(nixl_capi_invalidate_remote_md, Status(Agent, const char*))                                                 \
  REQUIRED(nixl_capi_create_xfer_dlist, Status(MemoryType, Descriptors*, bool))                                        \
  REQUIRED(nixl_capi_destroy_xfer_dlist, Status(Descriptors))                                                          \
  REQUIRED(nixl_capi_xfer_dlist_add_desc, Status(Descriptors, std::uintptr_t, std::size_t, std::uint64_t))             \
  REQUIRED(nixl_capi_create_xfer_req,                                                                                  \
           Status(Agent, Direction, Descriptors, Descriptors, const char*, Request*, Options))                         \
  REQUIRED(nixl_capi_post_xfer_req, Status(Agent, Request, Options))                                                   \
  REQUIRED(nixl_capi_get_xfer_status, Status(Agent, Request))                                                          \
  REQUIRED(nixl_capi_release_xfer_req, Status(Agent, Request))                                                         \
  REQUIRED(nixl_capi_destroy_xfer_req, Status(Request))                                                                \
  REQUIRED(nixl_capi_gen_notif, Status(Agent, const char*, const void*, std::size_t, Options))                         \
  REQUIRED(nixl_capi_create_notif_map, Status(Notifications*))                                                         \
  REQUIRED(nixl_capi_destroy_notif_map, Status(Notifications))                                                         \
  REQUIRED(nixl_capi_get_notifs, Status(Agent, Notifications, Options))                                                \
  REQUIRED(nixl_capi_notif_map_size, Status(Notifications, std::size_t*))                                              \
  REQUIRED(nixl_capi_notif_map_get_agent_at, Status(Notifications, std::size_t, const char**))                         \
  REQUIRED(nixl_capi_notif_map_get_notifs_size, Status(Notifications, const char*, std::size_t*))                      \
  REQUIRED(nixl_capi_notif_map_get_notif, Status(Notifications, const char*, std::size_t, const void**, std::size_t*)) \
  REQUIRED(nixl_capi_notif_map_clear, Status(Notifications))

struct Table {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_NIXL_API)
};

// libnixl_capi.so in the folders, then by the loader's own search.
class Library : public OneLibrary<Library, Table> {
 public:
  static std::string version() { return ""; }  // the C API tells none

  // Throw RuntimeCallError where a call failed. The C API gives one number for whatever a backend says.
  void check(Status status, const char* call) const {
    if (status != kOk) [[unlikely]] {
      fail(status, call);
    }
  }
  [[noreturn]] void fail(Status status, const char* call) const;

 private:
  friend class OneLibrary<Library, Table>;
  explicit Library(const std::vector<std::string>& folders);
};

}  // namespace linkgauge::nixl
