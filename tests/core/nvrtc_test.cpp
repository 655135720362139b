// The kernels' text under the vendor's own run-time compilers, which need no GPU. LINKGAUGE_TEST_NVRTC lists what to
// compile with and for: "/path/libnvrtc.so.12:sm_70;/path/libnvrtc.so.13:sm_75,sm_90,sm_100".
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "device/linked_kernels.h"
#include "device/nvrtc_compiler.h"
#include "fewer.h"
#include "kernels/kernel_source.h"
#include "kernels/kernels.h"
#include "transport/nvshmem/kernels.h"

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
    // Seconds each: './lg test' takes the newest, whose text has every kernel.
    std::istringstream architectures(entry.substr(kThorough ? colon + 1 : entry.find_last_of(":,") + 1));
    for (std::string architecture; std::getline(architectures, architecture, ',');) {
      for (const KernelPart& part : kernel_parts(architecture)) {
        const std::string image = compiler.compile(part.source, architecture);
        EXPECT_EQ(image.substr(0, 4),
                  "\x7f"
                  "ELF");
        for (const std::string& name : part.kernels)
          EXPECT_NE(image.find(".text." + name + '\0'), std::string::npos) << name << " for " << architecture;
      }
    }
  }
}

TEST(Nvrtc, CompilesPtxForWhatIsNewerThanItself) {
  const char* asked = std::getenv("LINKGAUGE_TEST_NVRTC");
  if (asked == nullptr) GTEST_SKIP() << "LINKGAUGE_TEST_NVRTC names no compiler (wheels nvidia-cuda-nvrtc[-cu12])";
  const std::string every(asked);
  std::istringstream entries(kThorough ? every : every.substr(every.rfind(';') + 1));  // the newest compiler
  for (std::string entry; std::getline(entries, entry, ';');) {
    NvrtcCompiler compiler(entry.substr(0, entry.rfind(':')));
    EXPECT_EQ(compiler.target_for("sm_90"), "sm_90");
    const std::string target = compiler.target_for("sm_990");
    EXPECT_EQ(target.rfind("compute_", 0), 0U) << target;
    EXPECT_GE(cuda_architecture(target), 120);
    const std::vector<KernelPart> parts = kernel_parts(target);
    for (const KernelPart& part : parts) {
      const std::string image = compiler.compile(part.source, target);
      EXPECT_NE(image.find(".target sm_" + std::to_string(cuda_architecture(target))), std::string::npos);
      for (const std::string& name : part.kernels)
        EXPECT_NE(image.find(".entry " + name + '('), std::string::npos) << name << " for " << target;
    }
  }
}

// Calls `body` with each compiler of CUDA 13, which the wheels of device libraries here are of, among `asked`
// (LINKGAUGE_TEST_NVRTC); it looks for libraries in `folders`, ':' between them. Returns how many there were.
template <typename Body>
int with_compilers_of_13(const char* asked, const char* folders, const Body& body) {
  std::vector<std::string> places;
  std::istringstream listed(folders);
  for (std::string folder; std::getline(listed, folder, ':');) places.push_back(folder);
  int count = 0;
  std::istringstream entries(asked);
  for (std::string entry; std::getline(entries, entry, ';');) {
    NvrtcCompiler compiler(entry.substr(0, entry.rfind(':')), places);
    if (compiler.major() != 13) continue;
    body(compiler);
    ++count;
  }
  return count;
}

// LINKGAUGE_TEST_NVSHMEM: folders of libraries, ':' between them, with NVSHMEM's device library and nvJitLink, and the
// headers of both and of CUDA beside them (wheels nvidia-nvshmem-cu13, nvidia-nvjitlink, nvidia-cuda-runtime, -cccl).
TEST(Nvrtc, LinksKernelsThatPutAndCollectivesWithNvshmemsDeviceLibrary) {
  const char* folders = std::getenv("LINKGAUGE_TEST_NVSHMEM");
  const char* asked = std::getenv("LINKGAUGE_TEST_NVRTC");
  if (folders == nullptr || asked == nullptr)
    GTEST_SKIP() << "LINKGAUGE_TEST_NVSHMEM names no NVSHMEM, or LINKGAUGE_TEST_NVRTC no compiler";
  const int linked = with_compilers_of_13(asked, folders, [&](NvrtcCompiler& compiler) {
    const LinkedCode code{linked_text("lg_nvshmem_put"), "", "nvshmem.h", "libnvshmem_device.a", "NVSHMEM", "-"};
    const std::string image = compiler.compile_linked(code, "sm_90");
    EXPECT_EQ(image.substr(0, 4),
              "\x7f"
              "ELF");
    for (const char* kernel : {"lg_nvshmem_put", "lg_nvshmem_pingpong"})
      EXPECT_NE(image.find(std::string(".text.") + kernel + '\0'), std::string::npos) << kernel;
    // Of the reductions one whose operands are compared as floats of 16 bits: of 4 bytes one takes 20 s.
    std::vector<Pattern> patterns = {Pattern::kBarrier, Pattern::kAllreduce};
    if (kThorough) {
      for (const Pattern more : {Pattern::kAlltoall, Pattern::kAllgather, Pattern::kBroadcast, Pattern::kReduceScatter})
        patterns.push_back(more);
    }
    for (const Pattern pattern : patterns) {
      const nvshmem::CollectiveCode one = nvshmem::collective_code(pattern, Datatype::kBfloat16, ReduceOp::kMax);
      const LinkedCode collective{one.text, "", code.header, code.archive, code.made_by, code.fix};
      EXPECT_NE(compiler.compile_linked(collective, "sm_90").find(".text." + one.kernel + '\0'), std::string::npos)
          << one.kernel;
    }
    LinkedCode lacking = code;
    lacking.archive = "libno_such_device.a";
    EXPECT_THROW((void)compiler.compile_linked(lacking, "sm_90"), Unsupported);
  });
  EXPECT_GT(linked, 0) << "no NVRTC of CUDA 13 among " << asked;
}

// LINKGAUGE_NCCL_INCLUDE: folders with NCCL's headers and CUDA's, ';' between them (wheel nvidia-nccl-cu13).
TEST(Nvrtc, CompilesKernelsThatMeetByNcclsBarriers) {
  const char* headers = std::getenv("LINKGAUGE_NCCL_INCLUDE");
  const char* folders = std::getenv("LINKGAUGE_TEST_NVSHMEM");
  const char* asked = std::getenv("LINKGAUGE_TEST_NVRTC");
  if (headers == nullptr || folders == nullptr || asked == nullptr)
    GTEST_SKIP() << "LINKGAUGE_NCCL_INCLUDE, LINKGAUGE_TEST_NVSHMEM or LINKGAUGE_TEST_NVRTC is not said";
  const std::string first = std::string(headers).substr(0, std::string(headers).find(';'));
  const int compiled = with_compilers_of_13(asked, folders, [&](NvrtcCompiler& compiler) {
    LinkedCode code{linked_text("lg_lsa_barrier"), first, "nccl_device/impl/lsa_barrier__funcs.h", "", "NCCL", "-"};
    const std::string image = compiler.compile_linked(code, "sm_90");
    for (const char* kernel : {"lg_lsa_barrier", "lg_lsa_allreduce"})
      EXPECT_NE(image.find(std::string(".text.") + kernel + '\0'), std::string::npos) << kernel;
    code.folder.clear();
    EXPECT_THROW((void)compiler.compile_linked(code, "sm_90"), Unsupported);
  });
  EXPECT_GT(compiled, 0) << "no NVRTC of CUDA 13 among " << asked;
}

TEST(KernelSource, IncludesNothingAndHasEveryKernelOnce) {
  std::multiset<std::string> found;
  for (const KernelPart& part : kernel_parts("sm_100")) {
    EXPECT_EQ(part.source.find("#include"), std::string::npos);
    EXPECT_EQ(part.source.find("#pragma once"), std::string::npos);
    found.insert(part.kernels.begin(), part.kernels.end());
  }
  EXPECT_EQ(found.size(), std::set<std::string>(found.begin(), found.end()).size());
  EXPECT_EQ(found.size(), 19 + std::size(kKernelsAllreducePush));
  std::size_t elsewhere = 0;  // the bulk copies are those of sm_90 and newer
  for (const KernelPart& part : kernel_parts("gfx90a")) elsewhere += part.kernels.size();
  EXPECT_EQ(elsewhere, found.size() - 1);
}

}  // namespace
}  // namespace linkgauge
