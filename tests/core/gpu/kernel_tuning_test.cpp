// The choice of a copy kernel against the stand-in: which variants there are, that each copies, what is measured anew.
// Times mean nothing there: tests/core/kernel_choice_test.cpp plants some, and real_device_test.cpp judges the choice
// on a GPU.
#include "device/kernel_tuning.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "kernels/kernels.h"
#include "stand_in_control.h"

namespace linkgauge {
namespace {

class KernelTuning : public ::testing::Test {
 protected:
  KernelTuning() { open(""); }
  ~KernelTuning() override { std::filesystem::remove_all(cache_); }

  void open(const std::string& settings) {
    runtime_.reset();
    control_.configure(settings);
    RuntimeRequest request;
    request.which = "cuda";
    request.kernel_cache = std::filesystem::temp_directory_path() / ("linkgauge_tuning_" + std::to_string(getpid()));
    request.library_folders = {LINKGAUGE_STAND_IN_FOLDER "/nvrtc12"};
    cache_ = request.kernel_cache;
    runtime_ = open_runtime(request);
    runtime_->bind_thread(0);
  }

  StandInControl control_{"libcuda.so.1"};
  std::filesystem::path cache_;
  std::shared_ptr<DeviceRuntime> runtime_;
};

TEST_F(KernelTuning, VariantsFitTheDevice) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20, std::size_t{1} << 30}) {
    std::set<std::string> kernels;
    for (const CopyVariant& variant : copy_variants(*runtime_, 0, bytes, 0)) {
      EXPECT_GE(variant.shape.blocks, 1U);
      EXPECT_LE(variant.shape.threads, variant.kernel == kKernelCopyU16 ? 512U : 1024U);
      EXPECT_LE(variant.shape.shared_bytes, 227U << 10);
      EXPECT_EQ(variant.shape.shared_bytes > 0, variant.kernel == kKernelCopyBulk);
      EXPECT_NE(runtime_->kernel(0, variant.kernel), nullptr);
      kernels.insert(variant.kernel);
    }
    EXPECT_EQ(kernels.count(kKernelCopyBulk), bytes >= (64U << 10) ? 1U : 0U);
    EXPECT_GE(kernels.size(), 5U);
  }
}

// Parts of sm_120 and sm_121 give a block 99 KiB where sm_90 gives 227; a launch that asks for more is refused.
TEST_F(KernelTuning, NoBlockAsksForMoreSharedMemoryThanTheDeviceGives) {
  open("shared=101376");
  const std::size_t bytes = std::size_t{1} << 20;
  std::size_t most = 0;
  for (const int blocks : {0, 2}) {
    for (const CopyVariant& variant : copy_variants(*runtime_, 0, bytes, blocks)) {
      EXPECT_LE(variant.shape.shared_bytes, 101376U);
      most = std::max<std::size_t>(most, variant.shape.shared_bytes);
    }
  }
  EXPECT_GE(most, 64U << 10) << "what fits is tried";
  Buffer source(*runtime_, 0, MemoryKind::kDevice, bytes);
  Buffer target(*runtime_, 1, MemoryKind::kDevice, bytes);
  EXPECT_NO_THROW((void)fastest_copy(*runtime_, {0, 1, 0}, target.data(), source.data(), bytes, 0));
}

TEST_F(KernelTuning, BlocksOfTheCaseAreKept) {
  for (const CopyVariant& variant : copy_variants(*runtime_, 0, 1 << 20, 7)) EXPECT_EQ(variant.shape.blocks, 7U);
}

TEST_F(KernelTuning, MeasuresForEachPathAndMagnitude) {
  const std::size_t bytes = 10'000;
  Buffer source(*runtime_, 0, MemoryKind::kDevice, 4 * bytes);
  Buffer target(*runtime_, 1, MemoryKind::kDevice, 4 * bytes);
  std::memset(source.data(), 5, source.size());
  std::memset(target.data(), 0, target.size());
  const auto choose = [&](std::size_t size, CopyPath path) {
    const int before = control_.calls("cuLaunchKernel");
    const CopyVariant variant = fastest_copy(*runtime_, path, target.data(), source.data(), size, 0);
    EXPECT_FALSE(variant.kernel.empty());
    return control_.calls("cuLaunchKernel") - before;
  };
  ASSERT_NE(runtime_->kernel(0, kKernelCopy), nullptr);  // loads the module, which stays
  const auto launches = [&] { return control_.live(); };
  const int live = launches();
  EXPECT_GT(choose(bytes, {0, 1, 0}), 10);
  EXPECT_EQ(std::memcmp(source.data(), target.data(), bytes), 0);
  // Until it is told clearly, or twice alike: by the stand-in's times that may take a while.
  int measurements = 1;
  while (choose(bytes, {0, 1, 0}) > 0) ASSERT_LT(++measurements, 100);
  EXPECT_EQ(choose(bytes + 100, {0, 1, 0}), 0);  // the same magnitude
  EXPECT_GT(choose(4 * bytes, {0, 1, 0}), 10);
  EXPECT_GT(choose(bytes, {0, 0, 1}), 10);  // the other direction
  EXPECT_GT(choose(bytes, {0, -1, 0}), 10);
  EXPECT_EQ(launches(), live);
}

TEST_F(KernelTuning, BothWaysAreCopied) {
  constexpr std::size_t kBytes = 100'003;
  Buffer near(*runtime_, 0, MemoryKind::kDevice, 2 * kBytes);
  Buffer far(*runtime_, 0, MemoryKind::kPinned, 2 * kBytes);
  auto* const here = static_cast<std::byte*>(near.data());
  auto* const there = static_cast<std::byte*>(far.data());
  std::memset(here, 1, 2 * kBytes);
  std::memset(there, 2, 2 * kBytes);
  const BothWays ways{here, there, there + kBytes, here + kBytes};
  for (const int blocks : {0, 3}) {
    const CopyVariant chosen = fastest_both_ways(*runtime_, 0, ways, kBytes, blocks);
    EXPECT_EQ(chosen.shape.threads % 64, 0U);  // whole pairs of warps
    if (blocks > 0) {
      EXPECT_EQ(chosen.shape.blocks, 3U);
    }
  }
  EXPECT_EQ(std::memcmp(here, there, kBytes), 0);
  EXPECT_EQ(std::memcmp(here + kBytes, there + kBytes, kBytes), 0);
}

}  // namespace
}  // namespace linkgauge
