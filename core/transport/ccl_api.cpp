#include "transport/ccl_api.h"

#include <map>
#include <memory>
#include <mutex>

#include "errors.h"

namespace linkgauge::ccl {

namespace {

const char* name_of(Result result) {
  static constexpr const char* kNames[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                           "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                           "ncclRemoteError",   "ncclInProgress"};
  return result >= 0 && result < static_cast<int>(std::size(kNames)) ? kNames[result] : "an unknown result";
}

std::vector<std::string> names_to_try(bool rccl, const std::string& path, const std::vector<std::string>& folders) {
  if (!path.empty()) return {path};
  const std::string soname = rccl ? "librccl.so.1" : "libnccl.so.2";
  std::vector<std::string> names;
  for (const std::string& folder : folders) names.push_back(folder + "/" + soname);
  names.push_back(soname);
  return names;
}

}  // namespace

Library::Library(bool rccl, const std::vector<std::string>& names) : library_(names), rccl_(rccl) {
  const std::string product = rccl ? "RCCL" : "NCCL";
  if (!library_) throw Unsupported(product + " was not found: " + library_.why());
  const std::vector<SymbolEntry> entries = {
#define LINKGAUGE_CCL_REQUIRED(name, ...) {#name, reinterpret_cast<void**>(&table_.name), true},
#define LINKGAUGE_CCL_OPTIONAL(name, ...) {#name, reinterpret_cast<void**>(&table_.name), false},
      LINKGAUGE_CCL_API(LINKGAUGE_CCL_REQUIRED, LINKGAUGE_CCL_OPTIONAL)
#undef LINKGAUGE_CCL_REQUIRED
#undef LINKGAUGE_CCL_OPTIONAL
  };
  const std::string missing = bind_symbols(library_, entries);
  if (!missing.empty()) throw Unsupported(product + " at " + library_.path() + " is too old: it lacks " + missing);
  check(table_.ncclGetVersion(&version_code_), "ncclGetVersion", nullptr, -1);
}

const Library& Library::load(bool rccl, const std::string& path, const std::vector<std::string>& folders) {
  static std::mutex mutex;
  static std::map<std::vector<std::string>, std::unique_ptr<Library>> loaded;
  const std::lock_guard lock(mutex);
  const std::vector<std::string> names = names_to_try(rccl, path, folders);
  std::unique_ptr<Library>& library = loaded[names];
  if (!library) library.reset(new Library(rccl, names));
  return *library;
}

std::string version_text(int code) {
  // Since 2.9 the code is major * 10000 + minor * 100 + patch; before, major * 1000 + minor * 100 + patch.
  const int major = code >= 10000 ? code / 10000 : code / 1000;
  const int rest = code >= 10000 ? code % 10000 : code % 1000;
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." + std::to_string(rest % 100);
}

std::string Library::version() const { return version_text(version_code_); }

void Library::check(Result result, const char* call, Communicator communicator, int device) const {
  if (result == kSuccess) return;
  std::string detail = table_.ncclGetErrorString != nullptr ? table_.ncclGetErrorString(result) : "";
  if (table_.ncclGetLastError != nullptr) {
    const char* last = table_.ncclGetLastError(communicator);
    if (last != nullptr && last[0] != '\0') detail += std::string("; last: ") + last;
  }
  throw RuntimeCallError(call, name_of(result), result, device, detail);
}

std::string supports_datatype(const Library& library, Datatype datatype) {
  constexpr int kFirstWithFp8 = 22400;  // NCCL 2.24 release notes: fp8 reductions
  if (is_fp8(datatype) && !library.rccl() && library.version_code() < kFirstWithFp8) {
    return "NCCL " + library.version() + " has no 8-bit floating point: 2.24 or newer is needed";
  }
  return "";
}

}  // namespace linkgauge::ccl
