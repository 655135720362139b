#include "device/hip_api.h"

#include <cstdlib>

namespace linkgauge::hip {

std::vector<SymbolEntry> Api::entries() {
#define LINKGAUGE_REQUIRED(name, type) {#name, reinterpret_cast<void**>(&name), true},
#define LINKGAUGE_OPTIONAL(name, type) {#name, reinterpret_cast<void**>(&name), false},
  return {LINKGAUGE_HIP_API(LINKGAUGE_REQUIRED, LINKGAUGE_OPTIONAL) LINKGAUGE_HIP_API_SINCE_6(LINKGAUGE_OPTIONAL)};
#undef LINKGAUGE_REQUIRED
#undef LINKGAUGE_OPTIONAL
}

std::vector<std::string> library_names() {
  std::vector<std::string> names;
  const char* root = std::getenv("ROCM_PATH");
  for (const std::string& folder : {std::string(), std::string(root != nullptr ? root : "/opt/rocm") + "/lib/"}) {
    for (const char* version : {".7", ".6", ".5"}) names.push_back(folder + "libamdhip64.so" + version);
  }
  return names;
}

}  // namespace linkgauge::hip
