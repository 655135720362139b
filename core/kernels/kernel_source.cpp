#include "kernels/kernel_source.h"

#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/errors.h"
#include "kernels/kernels.h"

namespace linkgauge {

// Generated at build time (CMakeLists.txt): what all parts begin with, and what each goes on with.
extern const char* const kKernelHeaders[];
extern const unsigned kKernelHeadersCount;
extern const char* const kKernelTexts[];
extern const unsigned kKernelTextsCount;
extern const char* const kLinkedTexts[];
extern const unsigned kLinkedTextsCount;

namespace {

std::vector<std::string> kernel_names(const std::string& target) {
  std::vector<std::string> names = {
      kKernelFill,     kKernelCheck,        kKernelReduce,          kKernelCopy,  kKernelCopyU1,
      kKernelCopyU2,   kKernelCopyU8,       kKernelCopyU16,         kKernelEmpty, kKernelChase,
      kKernelGate,     kKernelFlagPingpong, kKernelAllreduce,       kKernelGemm,  kKernelChaseInTurn,
      kKernelBothWays, kKernelBothWaysU8,   kKernelBothWaysRepeated};
  names.insert(names.end(), std::begin(kKernelsAllreducePush), std::end(kKernelsAllreducePush));
  if (cuda_architecture(target) >= 90) names.emplace_back(kKernelCopyBulk);
  return names;
}

std::string shared_headers() {
  std::string headers;
  for (unsigned i = 0; i < kKernelHeadersCount; ++i) headers += kKernelHeaders[i];
  return headers;
}

}  // namespace

std::string linked_text(const std::string& kernel) {
  constexpr std::string_view kHere = "#pragma linkgauge kernel headers\n";
  for (unsigned i = 0; i < kLinkedTextsCount; ++i) {
    std::string text = kLinkedTexts[i];
    if (text.find(' ' + kernel + '(') == std::string::npos) continue;
    if (const std::size_t at = text.find(kHere); at != std::string::npos)
      text.replace(at, kHere.size(), shared_headers());
    return text;
  }
  throw CallerError("no text of a linked kernel " + kernel);
}

int cuda_architecture(const std::string& target) {
  for (const std::string_view prefix : {"sm_", "compute_"}) {
    if (target.rfind(prefix, 0) == 0) return std::atoi(target.c_str() + prefix.size());
  }
  return 0;
}

std::vector<KernelPart> kernel_parts(const std::string& target) {
  const std::string headers = shared_headers();
  std::vector<KernelPart> parts;
  for (unsigned i = 0; i < kKernelTextsCount; ++i) {
    const std::string text = kKernelTexts[i];
    KernelPart part{headers + text, {}};
    for (const std::string& name : kernel_names(target)) {
      if (text.find(' ' + name + '(') != std::string::npos) part.kernels.push_back(name);
    }
    if (!part.kernels.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace linkgauge
