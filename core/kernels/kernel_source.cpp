#include "kernels/kernel_source.h"

#include <cstdlib>
#include <iterator>

#include "kernels/kernels.h"

namespace linkgauge {

// Generated at build time from *.h and *.cu (CMakeLists.txt).
extern const char* const kKernelText[];
extern const unsigned kKernelTextParts;

const std::string& kernel_source() {
  static const std::string source = [] {
    std::string text;
    for (unsigned part = 0; part < kKernelTextParts; ++part) text += kKernelText[part];
    return text;
  }();
  return source;
}

std::vector<std::string> gpu_kernel_names(const std::string& architecture) {
  std::vector<std::string> names = {kKernelFill,      kKernelCheck,       kKernelReduce,   kKernelCopy,
                                    kKernelCopyU1,    kKernelCopyU2,      kKernelCopyU8,   kKernelCopyU16,
                                    kKernelEmpty,     kKernelChase,       kKernelGate,     kKernelFlagPingpong,
                                    kKernelAllreduce, kKernelChaseInTurn, kKernelBothWays, kKernelBothWaysU8};
  names.insert(names.end(), std::begin(kKernelsAllreducePush), std::end(kKernelsAllreducePush));
  constexpr char kCudaPrefix[] = "sm_";
  if (architecture.rfind(kCudaPrefix, 0) == 0 && std::atoi(architecture.c_str() + sizeof(kCudaPrefix) - 1) >= 90)
    names.emplace_back(kKernelCopyBulk);
  return names;
}

}  // namespace linkgauge
