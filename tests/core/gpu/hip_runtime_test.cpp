// The HIP runtime against the stand-in, and what differs from CUDA: architecture, handles' flag, the compiler's
// process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/errors.h"
#include "device/hip_api.h"
#include "device/hip_architecture.h"
#include "device/hiprtc_compiler.h"
#include "fewer.h"
#include "kernels/kernel_source.h"
#include "kernels/kernels.h"
#include "refused.h"
#include "stand_in_control.h"

namespace linkgauge {
namespace {

class HipRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) unsetenv(variable);
    cache_ = std::filesystem::temp_directory_path() / ("linkgauge_hip_test_" + std::to_string(getpid()));
    std::filesystem::remove_all(cache_);
    control_.configure("");
  }
  void TearDown() override { std::filesystem::remove_all(cache_); }

  std::shared_ptr<DeviceRuntime> open(const std::string& settings = "") const {
    control_.configure(settings);
    RuntimeRequest request;
    request.which = "hip";
    request.kernel_cache = cache_.string();
    auto runtime = open_runtime(request);
    runtime->bind_thread(0);
    return runtime;
  }

  StandInControl control_{"libamdhip64.so.7"};
  std::filesystem::path cache_;
};

TEST_F(HipRuntime, DescribesInPciOrder) {
  const auto runtime = open("devices=8;gfx=gfx908");
  ASSERT_EQ(runtime->count(), 8);
  const DeviceInfo first = runtime->describe(0);
  EXPECT_EQ(first.kind, RuntimeKind::kHip);
  EXPECT_EQ(first.pci_address, "0000:c1:00.0");
  EXPECT_EQ(first.uuid, "GPU-0123456789abcde7");  // the stand-in's last ordinal has the lowest address
  EXPECT_EQ(first.architecture, "gfx908");
  EXPECT_EQ(first.multiprocessors, 4);
  expect_contains(runtime->version(), {"HIP 6.2.40091"});
}

TEST_F(HipRuntime, SaysWhyThereIsNothingToOpen) {
  expect_contains(message_of<Unsupported>([&] { (void)open("devices=0"); }), {"hipErrorNoDevice", "100"});
  expect_contains(message_of<Unsupported>([&] { (void)open("fail=hipInit:1:35"); }), {"too old"});
  setenv("HIP_VISIBLE_DEVICES", "", 1);
  expect_contains(message_of<Unsupported>([&] { (void)open(); }), {"HIP_VISIBLE_DEVICES=\"\" hides them"});
}

TEST_F(HipRuntime, AllocatesEveryKindAndGivesItBack) {
  const auto runtime = open("memory=8388608");
  const int before = control_.live();
  {
    const Buffer device(*runtime, 0, MemoryKind::kDevice, 1000);
    const Buffer pinned(*runtime, 0, MemoryKind::kPinned, 1000);
    const Buffer loose(*runtime, 0, MemoryKind::kPinned, 1000, {-1, true, false});
    const Buffer huge(*runtime, 0, MemoryKind::kPinned, 1000, {-1, false, true});
    const Buffer managed(*runtime, 1, MemoryKind::kManaged, 1000);
    EXPECT_EQ(control_.live(), before + 5);
    expect_contains(message_of<MemoryError>([&] { (void)runtime->allocate(0, MemoryKind::kDevice, 8 << 20, {}); }),
                    {"hipMalloc", "8388608", "hipErrorOutOfMemory (2)", "device 0", "6291456"});
  }
  EXPECT_EQ(control_.live(), before);
}

TEST_F(HipRuntime, ErrorsNameCallCodeAndDevice) {
  const auto runtime = open("fail=hipStreamSynchronize:1:700");
  Stream stream(*runtime, 0);
  expect_contains(message_of<RuntimeCallError>([&] { stream.synchronize(); }),
                  {"hipStreamSynchronize", "hipErrorIllegalAddress (700)", "device 0", "illegal memory access"});
}

TEST_F(HipRuntime, PeerAccessOrTheReason) {
  const auto runtime = open();
  runtime->bind_thread(1);
  EXPECT_EQ(runtime->peer_access(0, 1), "");
  EXPECT_EQ(control_.calls("hipDeviceEnablePeerAccess"), 1);
  const auto refused = open("fail=hipDeviceEnablePeerAccess:1:217");
  refused->bind_thread(1);
  expect_contains(refused->peer_access(0, 1), {"hipDeviceEnablePeerAccess", "hipErrorPeerAccessUnsupported (217)"});
}

TEST_F(HipRuntime, TheArchitectureOfTheKernelDriverHasTheSteppingInHexadecimal) {
  EXPECT_EQ(hip::gfx_name(90010), "gfx90a");
  EXPECT_EQ(hip::gfx_name(90008), "gfx908");
  EXPECT_EQ(hip::gfx_name(90402), "gfx942");
  EXPECT_EQ(hip::gfx_name(110000), "gfx1100");
  const auto write = [&](const char* node, const std::string& text) {
    std::filesystem::create_directories(cache_ / node);
    std::ofstream(cache_ / node / "properties") << text;
  };
  write("0", "cpu_cores_count 64\ngfx_target_version 0\nlocation_id 49408\ndomain 0\n");
  write("1", "gfx_target_version 90010\nlocation_id 49408\ndomain 0\n");  // 0xc100
  write("2", "gfx_target_version 90008\nlocation_id 49408\ndomain 1\n");
  EXPECT_EQ(hip::architecture_of("0000:c1:00.0", cache_.string()), "gfx90a");
  EXPECT_EQ(hip::architecture_of("0001:c1:00.0", cache_.string()), "gfx908");
  EXPECT_EQ(hip::architecture_of("0000:c2:00.0", cache_.string()), "");
  EXPECT_EQ(hip::architecture_of("0000:c1:00.0", (cache_ / "missing").string()), "");
}

TEST_F(HipRuntime, AnAbortOfTheCompilerIsAnErrorHere) {
  if (!can_start_compiler()) GTEST_SKIP() << "this machine cannot start linkgauge-hiprtc";
  const auto aborts = open("gfx=gfx942");
  expect_contains(message_of<RuntimeCallError>([&] { (void)aborts->kernel(0, kKernelFill); }),
                  {"hiprtcCompileProgram", "Aborted", "gfx942"});
  const auto fails = open("gfx=gfx999");
  expect_contains(message_of<RuntimeCallError>([&] { (void)fails->kernel(0, kKernelFill); }),
                  {"hiprtcCompileProgram", "gfx999", "HIPRTC_ERROR_COMPILATION", "unknown target"});
}

TEST_F(HipRuntime, CompiledKernelsAreKept) {
  if (!can_start_compiler()) GTEST_SKIP() << "this machine cannot start linkgauge-hiprtc";
  (void)open()->kernel(0, kKernelFill);
  const auto image = std::filesystem::directory_iterator(cache_)->path();
  const auto made = std::filesystem::last_write_time(image);
  (void)open()->kernel(0, kKernelFill);
  EXPECT_EQ(std::filesystem::last_write_time(image), made);
  expect_contains(message_of<Unsupported>([&] { (void)open()->kernel(0, kKernelCopyBulk); }),
                  {"lg_copy_bulk", "gfx90a"});
}

// The vendor's own library where it is installed (Debian: libamdhip64-5), which needs no GPU for this.
TEST(RealHip, HasEveryNameOfTheTable) {
  const SharedLibrary library({"libamdhip64.so.6", "libamdhip64.so.5"});
  if (!library) GTEST_SKIP() << library.why();
  hip::Api api;
  EXPECT_EQ(bind_symbols(library, api.entries()), "");
  EXPECT_TRUE(api.hipGetDeviceProperties != nullptr || api.hipGetDevicePropertiesR0600 != nullptr);
}

TEST(RealHip, CompilesEveryKernel) {
  if (std::getenv("LINKGAUGE_TEST_HIPRTC") == nullptr)
    GTEST_SKIP() << "LINKGAUGE_TEST_HIPRTC does not name architectures, as in gfx90a,gfx908";
  const SharedLibrary library({"libamdhip64.so.6", "libamdhip64.so.5"});
  ASSERT_TRUE(library) << library.why();
  const auto compiler = open_hiprtc(library.path());
  std::string asked = std::getenv("LINKGAUGE_TEST_HIPRTC");
  if (!kThorough) asked.resize(std::min(asked.size(), asked.find(',')));  // ten seconds each
  std::istringstream architectures(asked);
  for (std::string architecture; std::getline(architectures, architecture, ',');) {
    for (const KernelPart& part : kernel_parts(architecture)) {
      const std::string image = compiler->compile(part.source, architecture);
      EXPECT_EQ(image.substr(0, 4),
                "\x7f"
                "ELF");
      for (const std::string& name : part.kernels)
        EXPECT_NE(image.find(name + ".kd"), std::string::npos) << name << " for " << architecture;
    }
  }
}

}  // namespace
}  // namespace linkgauge
