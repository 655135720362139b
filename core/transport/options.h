// A transport's typed options. It reads the words of a case's variant where the case enters it (supports, connect,
// collective), and compares no text behind that.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/case_spec.h"
#include "base/errors.h"

namespace linkgauge {

template <typename Options>
struct VariantWord {
  std::string_view word;
  Options options;
};

// "NAME has no variant 'VARIANT'; its variants are A, B and C", then the hint.
std::string unknown_variant(std::string_view transport, std::string_view variant,
                            const std::vector<std::string_view>& known, std::string_view hint);

// What a transport's variants mean. An empty variant is Options{}. A variant is one word or, where Options has
// add(further), several that '+' joins; add() returns false where an earlier word has said the same.
template <typename Options>
struct Variants {
  std::string_view transport;
  std::span<const VariantWord<Options>> words;
  std::string_view hint = "";

  // Nothing where a word is unknown, or two disagree.
  std::optional<Options> read(std::string_view variant) const {
    if (variant.empty()) return Options{};
    if constexpr (requires(Options options) { options.add(options); }) {
      Options options{};
      for (std::size_t begin = 0; begin <= variant.size();) {
        const std::size_t end = std::min(variant.find('+', begin), variant.size());
        const Options* const word = meaning_of(variant.substr(begin, end - begin));
        if (word == nullptr || !options.add(*word)) return std::nullopt;
        begin = end + 1;
      }
      return options;
    }
    const Options* const word = meaning_of(variant);
    return word == nullptr ? std::nullopt : std::optional(*word);
  }
  // Of a case that supports() has taken.
  Options of(const Mechanism& by) const {
    if (const std::optional<Options> options = read(by.variant)) return *options;
    throw CallerError(why_not(by.variant));
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> names;
    for (const VariantWord<Options>& one : words) names.push_back(one.word);
    return names;
  }
  std::string why_not(std::string_view variant) const { return unknown_variant(transport, variant, names(), hint); }

 private:
  const Options* meaning_of(std::string_view word) const {
    for (const VariantWord<Options>& one : words) {
      if (one.word == word) return &one.options;
    }
    return nullptr;
  }
};

// For transports that have none: why not, or "". `library`: what chooses the path in their place.
std::string why_no_algorithm(std::string_view transport, const Mechanism& by);
std::string why_not_via(std::string_view library, const Mechanism& by);

}  // namespace linkgauge
