#include "transport/nccl/options.h"

#include <algorithm>
#include <array>
#include <string>

namespace linkgauge {
namespace {

constexpr VariantWord<CclOptions> kCclWords[] = {{"graph", {.graph = true}},
                                                 {"high_priority", {.high_priority = true}},
                                                 {"device", {.own_kernels = true}},
                                                 {"efficiency", {.cta_policy = kEfficiencyCtaPolicy}},
                                                 {"zero_cta", {.cta_policy = kZeroCtaPolicy}}};
constexpr Variants<CclOptions> kCclVariants{"ccl", kCclWords,
                                            ", which takes kernel's words and lsa_barrier, as device+pull"};
// Those of kernel but for routing's, which come last.
constexpr auto kOwnKernelWords = [] {
  std::array<VariantWord<KernelOptions>, std::size(kKernelWords) - std::size(kRoutingWords) + 1> words{};
  std::copy_n(std::begin(kKernelWords), words.size() - 1, words.begin());
  words.back() = {"lsa_barrier", {.meeting = Meeting::kLsa}};
  return words;
}();
constexpr Variants<KernelOptions> kOwnKernelVariants{"device of ccl", kOwnKernelWords};

}  // namespace

std::optional<CclOptions> read_ccl_options(const Mechanism& by) {
  const std::string_view variant = by.variant;
  const std::size_t plus = std::min(variant.find('+'), variant.size());
  std::optional<CclOptions> options = kCclVariants.read(variant.substr(0, plus));
  if (!options) return {};
  options->more_words = plus < variant.size();
  if (options->more_words && !options->own_kernels) return {};
  options->kernel = kOwnKernelVariants.read(variant.substr(std::min(plus + 1, variant.size())));
  options->buffer = ccl_buffer_of(by).value_or(CclBuffer::kPlain);
  options->send_recv = by.algorithm == "send_recv";
  return options;
}

std::optional<CclBuffer> ccl_buffer_of(const Mechanism& by) {
  if (by.buffer.empty() || by.buffer == "plain") return CclBuffer::kPlain;
  if (by.buffer == "allocated") return CclBuffer::kAllocated;
  if (by.buffer == "registered") return CclBuffer::kRegistered;
  if (by.buffer == "symmetric") return CclBuffer::kSymmetric;
  return {};
}

std::string ccl_settings(const Mechanism& by, const CclOptions& options) {
  if (options.cta_policy < 0) return by.settings;
  return by.settings + (by.settings.empty() ? "" : " ") + "NCCL_CTA_POLICY=" + std::to_string(options.cta_policy);
}

std::string why_no_ccl_variant(std::string_view variant) { return kCclVariants.why_not(variant); }
std::vector<std::string_view> ccl_variants() {
  std::vector<std::string_view> names = kCclVariants.names();
  for (const std::string_view word : kOwnKernelVariants.names()) names.push_back(word);
  return names;
}

}  // namespace linkgauge
