#include "transport/nvshmem/api.h"

#include "base/errors.h"

namespace linkgauge::nvshmem {
namespace {

constexpr const char* kFile = "libnvshmem_host.so.3";
constexpr const char* kFix = "; fix: pip install nvidia-nvshmem-cu13 (or -cu12, for a driver of CUDA 12)";

}  // namespace

DatatypeNames names_of(Datatype datatype) {
  switch (datatype) {
#define LINKGAUGE_NVSHMEM_NAMES(number, word, type) \
  case Datatype::number:                            \
    return {#word, #type};
    LINKGAUGE_NVSHMEM_DATATYPES(LINKGAUGE_NVSHMEM_NAMES)
#undef LINKGAUGE_NVSHMEM_NAMES
    default:
      return {};
  }
}

Library::Library(const std::vector<std::string>& folders)
    : OneLibrary(one_a_process(kFile, folders), {"NVSHMEM", std::string("NVSHMEM (") + kFile + ")", kFix}) {}

std::string Library::version() const {
  int major = 0;
  int minor = 0;
  int patch = 0;
  table_.nvshmemx_vendor_get_version_info(&major, &minor, &patch);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

void Library::check(Status status, const char* call, int device) const {
  if (status == 0) return;
  throw RuntimeCallError(call, "NVSHMEM status", status, device, "set NVSHMEM_DEBUG=INFO for more");
}

}  // namespace linkgauge::nvshmem
