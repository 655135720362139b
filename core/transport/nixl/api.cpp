#include "transport/nixl/api.h"

#include <memory>

#include "errors.h"
#include "transport/one_a_process.h"

namespace linkgauge::nixl {
namespace {

constexpr const char* kFile = "libnixl_capi.so";
constexpr const char* kFix = "fix: pip install --no-deps nixl-cu13 (or -cu12, for a driver of CUDA 12)";

std::vector<std::string> files_to_try(const std::vector<std::string>& folders) {
  std::vector<std::string> files;
  for (const std::string& folder : folders) files.push_back(folder + "/" + kFile);
  files.emplace_back(kFile);
  return files;
}

// nixl_capi_status_t; NIXL has no call that tells it.
const char* name_of(Status status) {
  switch (status) {
    case -1:
      return "NIXL_CAPI_ERROR_INVALID_PARAM";
    case -2:
      return "NIXL_CAPI_ERROR_BACKEND";
    case -3:
      return "NIXL_CAPI_ERROR_INVALID_STATE";
    case -4:
      return "NIXL_CAPI_ERROR_EXCEPTION";
    default:
      return "NIXL status";
  }
}

}  // namespace

Library::Library(const std::vector<std::string>& folders) : library_(files_to_try(folders)) {
  if (!library_) throw Unsupported(std::string("NIXL (") + kFile + ") was not found; " + kFix);
  const std::vector<SymbolEntry> entries = {
#define LINKGAUGE_NIXL_REQUIRED(name, ...) {#name, reinterpret_cast<void**>(&table_.name), true},
#define LINKGAUGE_NIXL_OPTIONAL(name, ...) {#name, reinterpret_cast<void**>(&table_.name), false},
      LINKGAUGE_NIXL_API(LINKGAUGE_NIXL_REQUIRED, LINKGAUGE_NIXL_OPTIONAL)
#undef LINKGAUGE_NIXL_REQUIRED
#undef LINKGAUGE_NIXL_OPTIONAL
  };
  const std::string missing = bind_symbols(library_, entries);
  if (!missing.empty()) {
    throw Unsupported("NIXL at " + library_.path() + " is too old: it lacks " + missing + "; " + kFix);
  }
  if (table_.nixl_capi_is_stub != nullptr && table_.nixl_capi_is_stub()) {
    throw Unsupported("NIXL at " + library_.path() + " is a stub without NIXL behind it; " + kFix);
  }
}

const Library& Library::load(const std::vector<std::string>& folders) {
  return opened_once<Library>([&] { return std::unique_ptr<Library>(new Library(folders)); });
}

void Library::fail(Status status, const char* call) const {
  throw RuntimeCallError(call, name_of(status), status, -1, "NIXL_LOG_LEVEL=DEBUG tells more");
}

}  // namespace linkgauge::nixl
