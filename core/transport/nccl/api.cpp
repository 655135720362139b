#include "transport/nccl/api.h"

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "base/errors.h"

namespace linkgauge::ccl {

namespace {

struct OnecclId {
  char data[4096];
};
using OnecclMakeId = Result(OnecclId*);
using OnecclInit = Result(Communicator*, std::size_t, OnecclId, int);

const char* name_of(Product product, Result result) {
  static constexpr const char* kNccl[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                          "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                          "ncclRemoteError",   "ncclInProgress"};
  static constexpr const char* kOneccl[] = {"onecclSuccess",         "onecclError",           "onecclSystemError",
                                            "onecclInternalError",   "onecclInvalidArgument", "onecclInvalidUsage",
                                            "onecclInProgress",      "onecclFailureGPU",      "onecclFailureCPU",
                                            "onecclAllocFailureCPU", "onecclAllocFailureGPU", "onecclPluginException",
                                            "onecclNotImplemented"};
  const bool nccl = product != Product::kOneccl;
  if (result < 0 || result >= static_cast<int>(nccl ? std::size(kNccl) : std::size(kOneccl)))
    return "an unknown result";
  return nccl ? kNccl[result] : kOneccl[result];
}

// By Product.
struct ProductNames {
  const char* title;
  const char* file;
};
constexpr ProductNames kProducts[] = {{"NCCL", "libnccl.so.2"}, {"RCCL", "librccl.so.1"}, {"oneCCL", "libccl.so.2"}};

std::vector<std::string> names_to_try(Product product, const std::string& path,
                                      const std::vector<std::string>& folders) {
  if (!path.empty()) return {path};
  return names_in(folders, kProducts[static_cast<std::size_t>(product)].file);
}

// What oneCCL calls a function of the table; "": it has none, or of another signature.
std::string own_name(const std::string& name) {
  for (const char* other : {"ncclGetUniqueId", "ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommAbort",
                            "ncclCommGetAsyncError", "ncclCommRegister", "ncclCommDeregister", "ncclCommWindowRegister",
                            "ncclCommWindowDeregister", "ncclGetPeerDevicePointer", "ncclMemAlloc", "ncclMemFree",
                            "ncclCommQueryProperties", "ncclDevCommCreate", "ncclDevCommDestroy"}) {
    if (name == other) return "";
  }
  if (name.ends_with("Config")) return "";
  return name == "ncclAlltoAll" ? "onecclAllToAll" : "one" + name.substr(1);
}

}  // namespace

Product product_of(std::string_view runtime) {
  return runtime == "hip" ? Product::kRccl : runtime == "cuda" ? Product::kNccl : Product::kOneccl;
}

Library::Library(Product product, const std::vector<std::string>& names) : product_(product) {
  std::vector<SymbolEntry> entries = table_.entries();
  std::deque<std::string> own_names;
  if (product == Product::kOneccl) {
    for (SymbolEntry& entry : entries) entry.name = own_names.emplace_back(own_name(entry.name)).c_str();
    std::erase_if(entries, [](const SymbolEntry& entry) { return *entry.name == '\0'; });
    entries.push_back({"onecclGetUniqueId", &make_id_, true});
    entries.push_back({"onecclCommInitRank", &init_, true});
    // It has neither (2022.2): a failed communicator is left to the process's end, and a call tells of its own failure.
    table_.ncclCommAbort.function = [](Communicator) -> Result { return kSuccess; };
    table_.ncclCommGetAsyncError.function = [](Communicator, Result* state) -> Result { return *state = kSuccess; };
  }
  library_ = open_library(names, entries, {std::string(name()), std::string(name()), ""});
  check(table_.ncclGetVersion(&version_code_), "ncclGetVersion", nullptr, -1);
}

const Library& Library::load(Product product, const std::string& path, const std::vector<std::string>& folders) {
  static std::mutex mutex;
  static std::map<std::vector<std::string>, std::unique_ptr<Library>> loaded;
  const std::lock_guard lock(mutex);
  const std::vector<std::string> names = names_to_try(product, path, folders);
  std::unique_ptr<Library>& library = loaded[names];
  if (!library) library.reset(new Library(product, names));
  return *library;
}

std::string_view Library::name() const { return kProducts[static_cast<std::size_t>(product_)].title; }

Result Library::make_id(std::vector<std::byte>& id) const {
  const bool nccl = make_id_ == nullptr;
  id.resize(nccl ? sizeof(UniqueId) : sizeof(OnecclId));
  if (nccl) return table_.ncclGetUniqueId(reinterpret_cast<UniqueId*>(id.data()));
  return reinterpret_cast<OnecclMakeId*>(make_id_)(reinterpret_cast<OnecclId*>(id.data()));
}

Result Library::init(Communicator* communicator, int ranks, const std::vector<std::byte>& id, int rank) const {
  if (init_ == nullptr) {
    UniqueId own{};
    std::memcpy(&own, id.data(), sizeof own);
    return table_.ncclCommInitRank(communicator, ranks, own, rank);
  }
  OnecclId own{};
  std::memcpy(&own, id.data(), sizeof own);
  return reinterpret_cast<OnecclInit*>(init_)(communicator, static_cast<std::size_t>(ranks), own, rank);
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
  const std::string called = product_ == Product::kOneccl ? "one" + std::string(call).substr(1) : call;
  throw RuntimeCallError(called.c_str(), name_of(product_, result), result, device, detail);
}

std::string supports_datatype(const Library& library, Datatype datatype) {
  constexpr int kFirstWithFp8 = 22400;  // NCCL 2.24 release notes: fp8 reductions
  if (is_fp8(datatype) && library.blocks()) return "oneCCL has no 8-bit floating point";
  if (is_fp8(datatype) && !library.rccl() && library.version_code() < kFirstWithFp8) {
    return "NCCL " + library.version() + " has no 8-bit floating point: 2.24 or newer is needed";
  }
  return "";
}

}  // namespace linkgauge::ccl
