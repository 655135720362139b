// The options of transports as their variants name them, and the number of a flow among those of its pair.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "transport/memory/kernel_options.h"
#include "transport/nccl/options.h"
#include "transport/nvshmem/options.h"
#include "transport/options.h"
#include "transport/transport.h"

namespace linkgauge {
namespace {

constexpr Variants<KernelOptions> kKernel{"kernel", kKernelWords, "; a hint"};

std::optional<CclOptions> ccl(const std::string& variant) { return read_ccl_options({.variant = variant}); }

TEST(Options, WordsJoinedSayEachTheirPart) {
  EXPECT_EQ(kKernel.read("").value().direction, PullOrPush::kEither);
  const KernelOptions options = kKernel.read("host_barrier+pull").value();
  EXPECT_EQ(options.direction, PullOrPush::kPull);
  EXPECT_EQ(options.meeting, Meeting::kHost);
  EXPECT_FALSE(options.resident);
  EXPECT_TRUE(kKernel.read("push+resident").value().resident);
}

TEST(Options, WordsThatDisagreeOrAreUnknownAreNone) {
  for (const char* variant : {"pull+push", "pull+pull", "host_barrier+device_barrier", "store_and_forward+pipelined",
                              "pul", "pull+", "+pull", "pull++resident", "resident+resident"}) {
    EXPECT_FALSE(kKernel.read(variant)) << variant;
  }
}

TEST(Options, TheErrorNamesEveryWord) {
  const std::string reason = kKernel.why_not("pul");
  EXPECT_EQ(reason.find("kernel has no variant 'pul'; its variants are pull, push, "), 0U) << reason;
  EXPECT_TRUE(reason.ends_with("store_and_forward, pipelined and striped; a hint")) << reason;
  for (const std::string_view word : kKernel.names()) EXPECT_NE(reason.find(word), std::string::npos) << word;
}

TEST(Options, EveryTransportTakesEachOfItsWordsOnce) {
  for (const std::string_view name : transport_names()) {
    const std::vector<std::string_view> words = make_transport(name)->variants();
    EXPECT_FALSE(words.empty()) << name;
    EXPECT_EQ(std::set<std::string_view>(words.begin(), words.end()).size(), words.size()) << name;
  }
}

TEST(Options, CclsDeviceTakesKernelsWords) {
  EXPECT_TRUE(ccl("graph")->graph);
  EXPECT_TRUE(ccl("device")->own_kernels);
  EXPECT_FALSE(ccl("device")->more_words);
  EXPECT_TRUE(ccl("device+push+resident")->kernel->resident);
  EXPECT_TRUE(ccl("device+pull+lsa_barrier")->lsa());
  EXPECT_TRUE(ccl("device+lsa_barrier")->kernel->meets_on_device());
  EXPECT_FALSE(ccl("device+host_barrier")->lsa());
  EXPECT_FALSE(ccl("device+pipelined")->kernel);  // its memory is reached, not routed
  EXPECT_FALSE(ccl("device+lsa_barrier+host_barrier")->kernel);
  for (const char* variant : {"graph+pull", "pull", "pull+device", "devices"}) EXPECT_FALSE(ccl(variant)) << variant;
}

TEST(Options, NvshmemsVariantsAreWholeWords) {
  EXPECT_EQ(nvshmem::kVariants.read("device+warp")->scope, nvshmem::Scope::kWarp);
  EXPECT_TRUE(nvshmem::kVariants.read("device+p")->plain);
  EXPECT_TRUE(nvshmem::kVariants.read("device+collective")->by_kernels());
  EXPECT_FALSE(nvshmem::kVariants.read("warp+device"));
}

TEST(Flows, ThoseOfAPairAreNumberedAsTheyCome) {
  Flows flows{{0, 1}, {1, 0}};
  flows.add({0, 1});
  flows.add({0, 2});
  flows.add({.source = 0, .target = 1, .ordinal = 7});  // which is not the caller's to say
  std::vector<int> ordinals;
  for (const Flow& flow : flows) ordinals.push_back(flow.ordinal);
  EXPECT_EQ(ordinals, (std::vector<int>{0, 0, 1, 0, 2}));
  EXPECT_EQ(flows[3].peer_of(2), 0);
  EXPECT_TRUE(flows[1].ends_at(0));
  EXPECT_FALSE(flows[3].ends_at(1));
}

}  // namespace
}  // namespace linkgauge
