// Enumerations and their words: one table an enumeration, read both ways.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "errors.h"

namespace linkgauge {

template <typename Value, std::size_t kCount>
struct Words {
  const char* what;  // "pattern", for messages
  std::array<std::pair<Value, std::string_view>, kCount> entries;

  // Throws CallerError naming the word and those expected.
  Value from(std::string_view word) const {
    for (const auto& [value, name] : entries) {
      if (name == word) return value;
    }
    std::string expected;
    for (const auto& [value, name] : entries) {
      if (!expected.empty()) expected += ", ";
      expected += name;
    }
    throw CallerError("unknown " + std::string(what) + " '" + std::string(word) + "', expected one of: " + expected);
  }

  std::string_view name_of(Value wanted) const {
    for (const auto& [value, name] : entries) {
      if (value == wanted) return name;
    }
    throw CallerError("no word for this " + std::string(what));
  }
};

}  // namespace linkgauge
