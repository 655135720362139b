// Values as the bytes that a group exchanges, and back.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

namespace linkgauge {

template <typename Value>
std::vector<std::byte> to_bytes(const Value* values, std::size_t count) {
  std::vector<std::byte> bytes(count * sizeof(Value));
  if (count != 0) std::memcpy(bytes.data(), values, bytes.size());
  return bytes;
}

template <typename Value>
std::vector<Value> from_bytes(const std::vector<std::byte>& bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Value));
  return values;
}

}  // namespace linkgauge
