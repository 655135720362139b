#include "device/cuda_api.h"

namespace linkgauge::cuda {

std::vector<SymbolEntry> Api::entries() {
#define LINKGAUGE_REQUIRED(name, type) {#name, reinterpret_cast<void**>(&name), true},
#define LINKGAUGE_OPTIONAL(name, type) {#name, reinterpret_cast<void**>(&name), false},
  return {LINKGAUGE_CUDA_API(LINKGAUGE_REQUIRED, LINKGAUGE_OPTIONAL)
              LINKGAUGE_CUDA_API_BEFORE_12_2(LINKGAUGE_OPTIONAL)};
#undef LINKGAUGE_REQUIRED
#undef LINKGAUGE_OPTIONAL
}

}  // namespace linkgauge::cuda
