// What crosses between ranks as bytes: values as they lie in memory, since all ranks of a launch run one build, and
// byte strings behind their length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/errors.h"

namespace linkgauge {

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class WireWriter {
 public:
  template <typename Value>
  WireWriter& value(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    return rest({reinterpret_cast<const std::byte*>(&value), sizeof value});
  }
  WireWriter& bytes(std::span<const std::byte> bytes) { return value(std::uint64_t{bytes.size()}).rest(bytes); }
  // Up to the message's end, or of a length that the reader knows.
  WireWriter& rest(std::span<const std::byte> bytes) {
    // Not insert: where its length is a constant, GCC 12 warns of an overflow that there is not.
    const std::size_t before = message_.size();
    message_.resize(before + bytes.size());
    if (!bytes.empty()) std::memcpy(message_.data() + before, bytes.data(), bytes.size());
    return *this;
  }
  WireWriter& rest(std::string_view text) { return rest(bytes_of(text)); }
  const Bytes& message() const { return message_; }

 private:
  Bytes message_;
};

// Reads in the order of writing. Throws PeerError where the message ends before what is read.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> message) : left_(message) {}

  template <typename Value>
  Value value() {
    static_assert(std::is_trivially_copyable_v<Value>);
    Value value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  Bytes bytes() {
    const std::span<const std::byte> found = take(value<std::uint64_t>());
    return {found.begin(), found.end()};
  }
  std::span<const std::byte> rest() { return take(left_.size()); }
  bool done() const { return left_.empty(); }

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > left_.size()) throw PeerError("a message between ranks is shorter than was agreed");
    const std::span<const std::byte> taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }

  std::span<const std::byte> left_;
};

template <typename Value>
Bytes to_bytes(const Value& value) {
  return WireWriter().value(value).message();
}
template <typename Value>
Bytes to_bytes(const Value* values, std::size_t count) {
  const auto* begin = reinterpret_cast<const std::byte*>(values);
  return {begin, begin + count * sizeof(Value)};
}
// A message of one value.
template <typename Value>
Value from_bytes(std::span<const std::byte> message) {
  WireReader reader(message);
  const Value value = reader.value<Value>();
  if (!reader.done()) throw PeerError("a message between ranks is longer than was agreed");
  return value;
}
// A message of as many values as it holds.
template <typename Value>
std::vector<Value> values_of(std::span<const std::byte> message) {
  std::vector<Value> values(message.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), message.data(), values.size() * sizeof(Value));
  return values;
}

}  // namespace linkgauge
