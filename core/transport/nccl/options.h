// The options of transport ccl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/memory/kernel_options.h"

namespace linkgauge {

inline constexpr int kEfficiencyCtaPolicy = 1;  // NCCL_CTA_POLICY_EFFICIENCY
inline constexpr int kZeroCtaPolicy = 2;        // NCCL_CTA_POLICY_ZERO

enum class CclBuffer : std::uint8_t { kPlain, kAllocated, kRegistered, kSymmetric };

struct CclOptions {
  bool graph = false;
  bool high_priority = false;  // its kernels go before others of the device that wait
  bool own_kernels = false;    // variant device, alone or with more words: our kernels, on the pointers that NCCL gives
  bool more_words = false;
  std::optional<KernelOptions> kernel = {};  // what these words say; nothing where one is unknown
  CclBuffer buffer = CclBuffer::kPlain;
  int cta_policy = -1;     // of a communicator of the case's own (NCCL_CTA_POLICY_*); -1: the library's
  bool send_recv = false;  // algorithm send_recv: messages, where the library has a call

  // Whether copy engines are to move what they can: it needs symmetric windows.
  bool zero_cta() const { return cta_policy == kZeroCtaPolicy; }
  bool lsa() const { return kernel && kernel->meeting == Meeting::kLsa; }
};

// Nothing where the variant is none of the transport's.
std::optional<CclOptions> read_ccl_options(const Mechanism& by);
// Nothing where the case names no buffer that the transport knows.
std::optional<CclBuffer> ccl_buffer_of(const Mechanism& by);
std::string why_no_ccl_variant(std::string_view variant);
std::vector<std::string_view> ccl_variants();
// The case's settings with what its variant says of a communicator; the form of Mechanism::settings.
std::string ccl_settings(const Mechanism& by, const CclOptions& options);

}  // namespace linkgauge
