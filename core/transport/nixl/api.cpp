#include "transport/nixl/api.h"

#include <iterator>

#include "base/errors.h"

namespace linkgauge::nixl {
namespace {

constexpr const char* kFile = "libnixl_capi.so";
constexpr const char* kFix = "; fix: pip install --no-deps nixl-cu13 (or -cu12, for a driver of CUDA 12)";

// nixl_capi_status_t; NIXL has no call that tells it.
const char* name_of(Status status) {
  static constexpr const char* kNames[] = {"NIXL status", "NIXL_CAPI_ERROR_INVALID_PARAM", "NIXL_CAPI_ERROR_BACKEND",
                                           "NIXL_CAPI_ERROR_INVALID_STATE", "NIXL_CAPI_ERROR_EXCEPTION"};
  return status < 0 && -status < static_cast<Status>(std::size(kNames)) ? kNames[-status] : kNames[0];
}

}  // namespace

Library::Library(const std::vector<std::string>& folders)
    : OneLibrary(names_in(folders, kFile), {"NIXL", std::string("NIXL (") + kFile + ")", kFix}) {
  if (table_.nixl_capi_is_stub != nullptr && table_.nixl_capi_is_stub()) {
    throw Unsupported("NIXL at " + library_.path() + " is a stub without NIXL behind it" + kFix);
  }
}

void Library::fail(Status status, const char* call) const {
  throw RuntimeCallError(call, name_of(status), status, -1, "set NIXL_LOG_LEVEL=DEBUG for more");
}

}  // namespace linkgauge::nixl
