#include "transport/net/ucx/api.h"

#include <memory>

#include "errors.h"
#include "transport/one_a_process.h"

namespace linkgauge::ucx {

Library::Library(const std::vector<std::string>& folders) : library_(one_a_process("libucp.so.0", folders)) {
  if (!library_) throw Unsupported("UCX (libucp.so.0) was not found; fix: pip install libucx-cu12");
  const std::vector<SymbolEntry> entries = {
#define LINKGAUGE_UCX_REQUIRED(name, ...) {#name, reinterpret_cast<void**>(&table_.name), true},
#define LINKGAUGE_UCX_OPTIONAL(name, ...) {#name, reinterpret_cast<void**>(&table_.name), false},
      LINKGAUGE_UCX_API(LINKGAUGE_UCX_REQUIRED, LINKGAUGE_UCX_OPTIONAL)
#undef LINKGAUGE_UCX_REQUIRED
#undef LINKGAUGE_UCX_OPTIONAL
  };
  const std::string missing = bind_symbols(library_, entries);
  if (!missing.empty()) throw Unsupported("UCX at " + library_.path() + " is too old: it lacks " + missing);
  table_.ucp_get_version(&major_, &minor_, &patch_);
  if (major_ != kApiMajor || minor_ < kApiMinor) {
    throw Unsupported("UCX at " + library_.path() + " is " + version() + ", expected 1.10 or a later 1.x; fix: pip " +
                      "install libucx-cu12");
  }
}

const Library& Library::load(const std::vector<std::string>& folders) {
  return opened_once<Library>([&] { return std::unique_ptr<Library>(new Library(folders)); });
}

std::string Library::version() const {
  return std::to_string(major_) + "." + std::to_string(minor_) + "." + std::to_string(patch_);
}

void Library::fail(Status status, const char* call) const {
  throw RuntimeCallError(call, "UCX status", status, -1, table_.ucs_status_string(status));
}

}  // namespace linkgauge::ucx
