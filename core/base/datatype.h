// Datatypes and operations of reductions, by number and by name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/datatypes.h"
#include "base/words.h"

namespace linkgauge {

#define LINKGAUGE_CONSTANT(constant, ...) constant,
enum class Datatype : std::uint8_t { LINKGAUGE_DATATYPES(LINKGAUGE_CONSTANT) };
enum class ReduceOp : std::uint8_t { LINKGAUGE_REDUCE_OPS(LINKGAUGE_CONSTANT) };
#undef LINKGAUGE_CONSTANT

#define LINKGAUGE_NAME(constant, name, ...) , name
template <>
inline constexpr auto kNames<Datatype> = names("datatype" LINKGAUGE_DATATYPES(LINKGAUGE_NAME));
template <>
inline constexpr auto kNames<ReduceOp> = names("op" LINKGAUGE_REDUCE_OPS(LINKGAUGE_NAME));
#undef LINKGAUGE_NAME

// Bytes of one element.
constexpr std::size_t size_of(Datatype value) {
#define LINKGAUGE_BYTES(constant, name, bytes) bytes,
  constexpr std::size_t kBytes[] = {LINKGAUGE_DATATYPES(LINKGAUGE_BYTES)};
#undef LINKGAUGE_BYTES
  return kBytes[static_cast<std::size_t>(value)];
}

}  // namespace linkgauge
