#include "transport/options.h"

namespace linkgauge {

std::string unknown_variant(std::string_view transport, std::string_view variant,
                            const std::vector<std::string_view>& known, std::string_view hint) {
  std::string text = std::string(transport) + " has no variant '" + std::string(variant) + "'; its variants are ";
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (i > 0) text += i + 1 < known.size() ? ", " : " and ";
    text += known[i];
  }
  return text.append(hint);
}

std::string why_no_algorithm(std::string_view transport, const Mechanism& by) {
  if (by.algorithm.empty()) return "";
  return std::string(transport) + " has no algorithm '" + by.algorithm + "'; leave --algorithm out";
}

std::string why_not_via(std::string_view library, const Mechanism& by) {
  return by.via < 0 ? "" : std::string(library) + " chooses its own path; leave --via out";
}

}  // namespace linkgauge
