#include "transport/net/ucx/api.h"

#include "base/errors.h"

namespace linkgauge::ucx {
namespace {

constexpr const char* kFix = "; fix: pip install libucx-cu12";

}  // namespace

Library::Library(const std::vector<std::string>& folders)
    : OneLibrary(one_a_process("libucp.so.0", folders), {"UCX", "UCX (libucp.so.0)", kFix}) {
  table_.ucp_get_version(&major_, &minor_, &patch_);
  if (major_ != kApiMajor || minor_ < kApiMinor) {
    throw Unsupported("UCX at " + library_.path() + " is " + version() + ", expected 1.10 or a later 1.x" + kFix);
  }
}

std::string Library::version() const {
  return std::to_string(major_) + "." + std::to_string(minor_) + "." + std::to_string(patch_);
}

void Library::fail(Status status, const char* call) const {
  throw RuntimeCallError(call, "UCX status", status, -1, table_.ucs_status_string(status));
}

}  // namespace linkgauge::ucx
