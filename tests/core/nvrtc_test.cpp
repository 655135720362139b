// The kernels' text under the vendor's own run-time compilers, which need no GPU. LINKGAUGE_TEST_NVRTC lists what to
// compile with and for: "/path/libnvrtc.so.12:sm_70;/path/libnvrtc.so.13:sm_75,sm_90,sm_100".
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "device/nvrtc_compiler.h"
#include "kernels/kernel_source.h"

namespace linkgauge {
namespace {

TEST(Nvrtc, CompilesEveryKernelForEveryArchitecture) {
  const char* asked = std::getenv("LINKGAUGE_TEST_NVRTC");
  if (asked == nullptr) GTEST_SKIP() << "LINKGAUGE_TEST_NVRTC names no compiler (wheels nvidia-cuda-nvrtc[-cu12])";
  std::istringstream entries(asked);
  for (std::string entry; std::getline(entries, entry, ';');) {
    const std::size_t colon = entry.rfind(':');
    ASSERT_NE(colon, std::string::npos) << entry;
    NvrtcCompiler compiler(entry.substr(0, colon));
    std::istringstream architectures(entry.substr(colon + 1));
    for (std::string architecture; std::getline(architectures, architecture, ',');) {
      const std::string image = compiler.compile(kernel_source(), architecture);
      EXPECT_EQ(image.substr(0, 4),
                "\x7f"
                "ELF");
      for (const std::string& name : gpu_kernel_names(architecture))
        EXPECT_NE(image.find(".text." + name + '\0'), std::string::npos) << name << " for " << architecture;
    }
  }
}

TEST(KernelSource, IncludesNothingAndNamesEveryKernel) {
  const std::string& source = kernel_source();
  EXPECT_EQ(source.find("#include"), std::string::npos);
  EXPECT_EQ(source.find("#pragma once"), std::string::npos);
  for (const std::string& name : gpu_kernel_names("sm_100"))
    EXPECT_NE(source.find(" " + name + "("), std::string::npos) << name;
}

}  // namespace
}  // namespace linkgauge
