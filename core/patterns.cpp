#include "patterns.h"

#include <string>

#include "errors.h"

namespace linkgauge {

using pattern_rows::kTable;

std::span<const PatternTraits> all_patterns() { return kTable; }

const PatternTraits& traits_of(Pattern pattern) {
  const auto number = static_cast<std::size_t>(pattern);
  if (number >= std::size(kTable)) throw CallerError("no row for pattern number " + std::to_string(number));
  return kTable[number];
}

Pattern moves_as(Pattern pattern) { return traits_of(pattern).as.value_or(pattern); }

Pattern pattern_from(std::string_view word) {
  std::string expected;
  for (const PatternTraits& row : kTable) {
    if (row.name == word) return row.pattern;
    expected += (expected.empty() ? "" : ", ") + std::string(row.name);
  }
  throw CallerError("unknown pattern '" + std::string(word) + "', expected one of: " + expected);
}

std::string_view to_string(Pattern value) { return traits_of(value).name; }

}  // namespace linkgauge
