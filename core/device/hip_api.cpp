#include "device/hip_api.h"

#include <cstdlib>

namespace linkgauge::hip {

std::vector<std::string> library_names() {
  std::vector<std::string> names;
  const char* root = std::getenv("ROCM_PATH");
  for (const std::string& folder : {std::string(), std::string(root != nullptr ? root : "/opt/rocm") + "/lib/"}) {
    for (const char* version : {".7", ".6", ".5"}) names.push_back(folder + "libamdhip64.so" + version);
  }
  return names;
}

}  // namespace linkgauge::hip
