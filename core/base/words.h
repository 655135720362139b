// The names of enumerations: one table an enumeration, read both ways. Lists of words, as messages have them.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/errors.h"

namespace linkgauge {

// "1, 2, 3" of numbers or words, in their order; of other things what `text_of` makes of each.
template <typename Items, typename TextOf>
std::string listed(const Items& items, const TextOf& text_of) {
  std::string text;
  for (const auto& item : items) text.append(text.empty() ? "" : ", ").append(text_of(item));
  return text;
}
template <typename Items>
std::string listed(const Items& items) {
  return listed(items, [](const auto& item) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(item)>>) {
      return std::to_string(item);
    } else {
      return std::string_view(item);
    }
  });
}

// The element of `rows` whose name is `word`. Throws CallerError with the word, what it is no name of, and all names.
template <typename Rows, typename NameOf>
const auto& named(const char* what, std::string_view word, const Rows& rows, const NameOf& name_of) {
  for (const auto& row : rows) {
    if (name_of(row) == word) return row;
  }
  throw CallerError("unknown " + std::string(what) + " '" + std::string(word) +
                    "', expected one of: " + listed(rows, name_of));
}

// The names of the values from 0 on.
template <std::size_t kCount>
struct Names {
  const char* what;  // "pattern", for messages
  std::array<std::string_view, kCount> words;
};
template <typename... Word>
constexpr Names<sizeof...(Word)> names(const char* what, Word... words) {
  return {what, {words...}};
}

// Each enumeration with names has a value of this beside it.
template <typename Value>
inline constexpr std::nullptr_t kNames = nullptr;
template <typename Value>
concept HasNames = requires {
  kNames<Value>.words;
};

template <HasNames Value>
constexpr std::string_view to_string(Value value) {
  const auto number = static_cast<std::size_t>(value);
  if (number >= std::size(kNames<Value>.words)) {
    throw CallerError("no " + std::string(kNames<Value>.what) + " has the number " + std::to_string(number));
  }
  return kNames<Value>.words[number];
}

// Throws CallerError naming the word and those expected.
template <HasNames Value>
Value from_word(std::string_view word) {
  const auto& words = kNames<Value>.words;
  const auto& found = named(kNames<Value>.what, word, words, [](std::string_view name) { return name; });
  return static_cast<Value>(&found - words.data());
}

}  // namespace linkgauge
