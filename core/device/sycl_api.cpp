#include "device/sycl_api.h"

#include <cstdlib>
#include <filesystem>

#include "base/errors.h"

namespace linkgauge::sycl {
namespace {

constexpr char kFile[] = "libDPCTLSyclInterface.so";
constexpr char kFix[] = "; fix: pip install dpctl intel-opencl-rt";

SharedLibrary opened(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    const std::filesystem::path path = std::filesystem::path(folder) / kFile;
    if (std::filesystem::exists(path)) names.push_back(path.string());
  }
  names.emplace_back(kFile);
  return SharedLibrary(names);
}

// A wheel's libraries are in PREFIX/lib, of which dpctl is in PREFIX/lib/python3.x/site-packages/dpctl.
void name_opencl_driver(const std::string& library) {
  if (std::getenv("OCL_ICD_FILENAMES") != nullptr || std::getenv("OCL_ICD_VENDORS") != nullptr) return;
  const std::filesystem::path folder = std::filesystem::path(library).parent_path();
  const std::filesystem::path driver = (folder / "../../../libintelocl.so").lexically_normal();
  std::error_code unreadable;
  if (std::filesystem::exists(driver, unreadable)) setenv("OCL_ICD_FILENAMES", driver.c_str(), 0);
}

}  // namespace

Library::Library(const std::vector<std::string>& folders) : library_(opened(folders)) {
  if (!library_) throw Unsupported("SYCL was not found: " + library_.why() + kFix);
  const std::string missing = bind_symbols(library_, api_.entries());
  if (!missing.empty()) throw Unsupported("DPCTL at " + library_.path() + " is too old: it lacks " + missing + kFix);
  name_opencl_driver(library_.path());
}

}  // namespace linkgauge::sycl
