// Long: each kernel of the devices as a function beside the others, found by one table of names.
#include "device/host_kernels.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "case_spec.h"
#include "device/host_allreduce.h"
#include "errors.h"
#include "kernels/kernels.h"
#include "kernels/values.h"

namespace linkgauge {
namespace {

using values::u64;

static_assert(static_cast<unsigned>(Datatype::kInt8) == values::kInt8);
static_assert(static_cast<unsigned>(Datatype::kUint64) == values::kUint64);
static_assert(static_cast<unsigned>(Datatype::kFloat16) == values::kFloat16);
static_assert(static_cast<unsigned>(Datatype::kFloat64) == values::kFloat64);
static_assert(static_cast<unsigned>(Datatype::kFloat8E4m3) == values::kFloat8E4m3);
static_assert(static_cast<unsigned>(Datatype::kFloat8E5m2) == values::kFloat8E5m2);
static_assert(static_cast<unsigned>(ReduceOp::kSum) == values::kSum);
static_assert(static_cast<unsigned>(ReduceOp::kAvg) == values::kAvg);
static_assert(kRawBytes == values::kRaw);

constexpr unsigned kDatatypes = 12;
constexpr unsigned kOps = 5;

template <typename T>
T argument(void** arguments, std::size_t index) {
  T value;
  // An argument may be a pointer, and then its own bytes are meant.
  std::memcpy(&value, arguments[index], sizeof(T));  // NOLINT(bugprone-sizeof-expression)
  return value;
}

// Calls function(datatype, op) with both as compile-time constants, so that loops over elements are specialized.
template <typename Function, unsigned kIndex = 0>
void with_constants(unsigned datatype, unsigned op, Function&& function) {
  if (op == values::kRaw) {
    function(std::integral_constant<unsigned, values::kUint8>{}, std::integral_constant<unsigned, values::kRaw>{});
    return;
  }
  if constexpr (kIndex < kDatatypes * kOps) {
    if (datatype == kIndex / kOps && op == kIndex % kOps) {
      function(std::integral_constant<unsigned, kIndex / kOps>{}, std::integral_constant<unsigned, kIndex % kOps>{});
    } else {
      with_constants<Function, kIndex + 1>(datatype, op, std::forward<Function>(function));
    }
  }
}

// Calls visit(position, word, first, count) for every piece of the range: bytes first..first+count-1 of stream word
// `word` lie at `position` of the range. Whole words but for the ends.
template <typename Visit>
[[gnu::always_inline]] inline void for_each_word(u64 bytes, u64 offset, Visit&& visit) {
  u64 position = 0;
  if (offset % 8 != 0 && bytes > 0) {
    const u64 count = std::min<u64>(8 - offset % 8, bytes);
    visit(position, offset / 8, offset % 8, count);
    position = count;
  }
  u64 word = (offset + position) / 8;
  for (; position + 8 <= bytes; position += 8, ++word) visit(position, word, u64{0}, u64{8});
  if (position < bytes) visit(position, word, u64{0}, bytes - position);
}

// A range of a stream, by value: what a loop reads must not lie where its stores could reach.
struct Range {
  std::uint64_t bytes;
  std::uint32_t datatype;
  std::uint32_t op;
  std::uint64_t seed;
  std::int32_t rank;
  std::int32_t ranks;
  std::uint64_t offset;
};

Range range_of(void** arguments) {  // parameters 1 to 7 of fill and check
  return {argument<std::uint64_t>(arguments, 1), argument<std::uint32_t>(arguments, 2),
          argument<std::uint32_t>(arguments, 3), argument<std::uint64_t>(arguments, 4),
          argument<std::int32_t>(arguments, 5),  argument<std::int32_t>(arguments, 6),
          argument<std::uint64_t>(arguments, 7)};
}

template <unsigned kDatatype, unsigned kOp>
void fill_range(std::byte* target, const Range range) {
  const values::Recipe recipe = values::recipe_of(kDatatype, kOp, range.ranks);
  for_each_word(range.bytes, range.offset, [=](u64 position, u64 word, u64 first, u64 count) {
    const u64 made = values::fill_word(kDatatype, kOp, range.seed, range.rank, recipe, word) >> (8 * first);
    std::memcpy(target + position, &made, count);
  });
}

void run_fill(void** arguments, const LaunchShape&) {
  const Range range = range_of(arguments);
  with_constants(range.datatype, range.op, [&](auto datatype, auto op) {
    fill_range<datatype(), op()>(argument<std::byte*>(arguments, 0), range);
  });
}

[[gnu::noinline]] void note_wrong(CheckResult* result, u64 position, u64 count, unsigned width, u64 due, u64 seen) {
  for (u64 byte = 0; byte < count; ++byte) {
    if ((((due ^ seen) >> (8 * byte)) & 0xff) == 0) continue;
    ++result->bad_bytes;
    if (result->first_bad_offset != ~std::uint64_t{0}) continue;
    const u64 element = byte / width * width;  // its first byte
    const u64 mask = width == 8 ? ~u64{0} : (u64{1} << (8 * width)) - 1;
    result->first_bad_offset = position + element;
    result->expected = (due >> (8 * element)) & mask;
    result->found = (seen >> (8 * element)) & mask;
  }
}

template <unsigned kDatatype, unsigned kOp>
void check_range(const std::byte* data, const Range range, CheckResult* result) {
  const values::Recipe recipe = values::recipe_of(kDatatype, kOp, range.ranks);
  for_each_word(range.bytes, range.offset, [=](u64 position, u64 word, u64 first, u64 count) {
    u64 due = values::expected_word(kDatatype, kOp, range.seed, range.rank, recipe, word) >> (8 * first);
    if (count < 8) due &= (u64{1} << (8 * count)) - 1;
    u64 seen = 0;
    std::memcpy(&seen, data + position, count);
    if (due != seen) [[unlikely]] {
      note_wrong(result, position, count, values::element_bytes(kDatatype), due, seen);
    }
  });
}

void run_check(void** arguments, const LaunchShape&) {
  const Range range = range_of(arguments);
  with_constants(range.datatype, range.op, [&](auto datatype, auto op) {
    check_range<datatype(), op()>(argument<const std::byte*>(arguments, 0), range,
                                  argument<CheckResult*>(arguments, 8));
  });
}

// How a datatype is stored and in what a reduction of it is reckoned: integers modulo 2^n, narrow floats in float32.
template <unsigned kDatatype>
struct Stored;
template <>
struct Stored<values::kInt8> {
  using Type = std::int8_t;
};
template <>
struct Stored<values::kUint8> {
  using Type = std::uint8_t;
};
template <>
struct Stored<values::kInt32> {
  using Type = std::int32_t;
};
template <>
struct Stored<values::kUint32> {
  using Type = std::uint32_t;
};
template <>
struct Stored<values::kInt64> {
  using Type = std::int64_t;
};
template <>
struct Stored<values::kUint64> {
  using Type = std::uint64_t;
};
template <>
struct Stored<values::kFloat16> {
  using Type = std::uint16_t;
};
template <>
struct Stored<values::kBfloat16> {
  using Type = std::uint16_t;
};
template <>
struct Stored<values::kFloat32> {
  using Type = float;
};
template <>
struct Stored<values::kFloat64> {
  using Type = double;
};
template <>
struct Stored<values::kFloat8E4m3> {
  using Type = std::uint8_t;
};
template <>
struct Stored<values::kFloat8E5m2> {
  using Type = std::uint8_t;
};

constexpr bool is_narrow(unsigned datatype) {
  return datatype == values::kFloat16 || datatype == values::kBfloat16 || datatype == values::kFloat8E4m3 ||
         datatype == values::kFloat8E5m2;
}

template <unsigned kOp, typename T>
T reduce_two(T left, T right) {
  if constexpr (kOp == values::kMin) {
    return right < left ? right : left;
  } else if constexpr (kOp == values::kMax) {
    return left < right ? right : left;
  } else if constexpr (std::is_integral_v<T>) {
    using Wrapping = std::make_unsigned_t<T>;  // signed overflow is undefined
    const auto a = static_cast<std::uint64_t>(static_cast<Wrapping>(left));
    const auto b = static_cast<std::uint64_t>(static_cast<Wrapping>(right));
    return static_cast<T>(static_cast<Wrapping>(kOp == values::kProd ? a * b : a + b));
  } else {
    return kOp == values::kProd ? left * right : left + right;
  }
}

// A strip of elements at a time, so that partial results stay in the first-level cache. `target` may be one of the
// sources: a strip is read from all before it is written.
template <unsigned kDatatype, unsigned kOp>
void reduce_strips(std::byte* target, const void* const* sources, int count, u64 elements) {
  using Type = typename Stored<kDatatype>::Type;
  using Partial = std::conditional_t<is_narrow(kDatatype), float, Type>;
  constexpr u64 kStrip = 1024;
  std::array<Partial, kStrip> partial;
  std::array<Type, kStrip> loaded;
  for (u64 begin = 0; begin < elements; begin += kStrip) {
    const u64 length = std::min(kStrip, elements - begin);
    for (int source = 0; source < count; ++source) {
      std::memcpy(loaded.data(), static_cast<const std::byte*>(sources[source]) + begin * sizeof(Type),
                  length * sizeof(Type));
      for (u64 i = 0; i < length; ++i) {
        Partial value;
        if constexpr (is_narrow(kDatatype)) {
          value = values::decode_narrow(kDatatype, loaded[i]);
        } else {
          value = loaded[i];
        }
        partial[i] = source == 0 ? value : reduce_two<kOp>(partial[i], value);
      }
    }
    for (u64 i = 0; i < length; ++i) {
      Partial value = partial[i];
      if constexpr (kOp == values::kAvg) value = static_cast<Partial>(value / static_cast<Partial>(count));
      if constexpr (is_narrow(kDatatype)) {
        loaded[i] = static_cast<Type>(values::encode_narrow(kDatatype, value));
      } else {
        loaded[i] = value;
      }
    }
    std::memcpy(target + begin * sizeof(Type), loaded.data(), length * sizeof(Type));
  }
}

void run_reduce(void** arguments, const LaunchShape&) {
  auto* target = argument<std::byte*>(arguments, 0);
  const auto* sources = argument<const void* const*>(arguments, 1);
  const auto count = argument<std::int32_t>(arguments, 2);
  const auto elements = argument<std::uint64_t>(arguments, 3);
  with_constants(argument<std::uint32_t>(arguments, 4), argument<std::uint32_t>(arguments, 5),
                 [&](auto datatype, auto op) {
                   if constexpr (op() != values::kRaw) {
                     reduce_strips<datatype(), op()>(target, sources, count, elements);
                   }
                 });
}

// Loads and stores of the core, not the C library's memcpy: the empty asm keeps the compiler from making it one.
void run_copy(void** arguments, const LaunchShape&) {
  auto* target = argument<std::byte*>(arguments, 0);
  const auto* source = argument<const std::byte*>(arguments, 1);
  const auto bytes = argument<std::uint64_t>(arguments, 2);
  using Vector = u64 __attribute__((vector_size(16)));
  constexpr std::size_t kUnroll = 8;
  constexpr std::size_t kStep = kUnroll * sizeof(Vector);
  u64 position = 0;
  for (; position + kStep <= bytes; position += kStep) {
    Vector lanes[kUnroll];
    for (std::size_t i = 0; i < kUnroll; ++i) {
      std::memcpy(&lanes[i], source + position + i * sizeof(Vector), sizeof(Vector));
    }
    for (std::size_t i = 0; i < kUnroll; ++i) {
      std::memcpy(target + position + i * sizeof(Vector), &lanes[i], sizeof(Vector));
    }
    asm volatile("" ::: "memory");
  }
  for (; position < bytes; ++position) {
    target[position] = source[position];
    asm volatile("" ::: "memory");
  }
}

void run_both_ways(void** arguments, const LaunchShape& shape) {
  void* there[] = {arguments[0], arguments[1], arguments[4]};
  void* back[] = {arguments[2], arguments[3], arguments[4]};
  run_copy(there, shape);
  run_copy(back, shape);
}

void run_empty(void**, const LaunchShape&) {}

void* walk(void** arguments) {
  auto* const* place = argument<void* const*>(arguments, 0);
  const auto loads = argument<std::uint64_t>(arguments, 1);
  for (std::uint64_t i = 0; i < loads; ++i)
    place = static_cast<void* const*>(*const_cast<void* const volatile*>(place));
  return const_cast<void*>(static_cast<const void*>(place));
}

void run_chase(void** arguments, const LaunchShape&) { *argument<void**>(arguments, 2) = walk(arguments); }

// The block that walks is of no concern here: a host device has one core.
void run_chase_in_turn(void** arguments, const LaunchShape&) {
  argument<void**>(arguments, 2)[argument<std::uint32_t>(arguments, 3)] = walk(arguments);
}

// Waits until *flag >= value, at most `spin_limit` looks; yields now and then, since the other side may need this core.
bool wait_for(const std::uint64_t* flag, std::uint64_t value, std::uint64_t spin_limit,
              std::memory_order order = std::memory_order_acquire) {
  constexpr std::uint64_t kSpinsPerYield = 4096;
  std::atomic_ref<std::uint64_t> shared(*const_cast<std::uint64_t*>(flag));
  for (std::uint64_t spin = 1; spin <= spin_limit; ++spin) {
    if (shared.load(order) >= value) return true;
    if (spin % kSpinsPerYield == 0) sched_yield();
  }
  return false;
}

void run_flag_pingpong(void** arguments, const LaunchShape&) {
  auto* mine = argument<std::uint64_t*>(arguments, 0);
  auto* theirs = argument<std::uint64_t*>(arguments, 1);
  const auto first = argument<std::uint64_t>(arguments, 2);
  const auto rounds = argument<std::uint64_t>(arguments, 3);
  const auto starter = argument<std::int32_t>(arguments, 4);
  const auto spin_limit = argument<std::uint64_t>(arguments, 5);
  auto* gave_up = argument<std::uint64_t*>(arguments, 6);
  const bool relaxed = argument<std::int32_t>(arguments, 7) != 0;
  const std::memory_order written = relaxed ? std::memory_order_relaxed : std::memory_order_release;
  std::atomic_ref<std::uint64_t> signal(*theirs);
  for (std::uint64_t round = first; round < first + rounds; ++round) {
    if (starter != 0) signal.store(round, written);
    if (!wait_for(mine, round, spin_limit, relaxed ? std::memory_order_relaxed : std::memory_order_acquire)) {
      *gave_up = round;
      return;
    }
    if (starter == 0) signal.store(round, written);
  }
}

void run_gemm(void** arguments, const LaunchShape&) {
  auto* product = argument<float*>(arguments, 0);
  const auto* left = argument<const float*>(arguments, 1);
  const auto* right = argument<const float*>(arguments, 2);
  const auto side = argument<std::uint64_t>(arguments, 3);
  for (std::uint64_t row = 0; row < side; ++row) {
    float* const into = product + row * side;
    std::fill_n(into, side, 0.0F);
    for (std::uint64_t k = 0; k < side; ++k) {
      const float factor = left[row * side + k];
      const float* const from = right + k * side;
      for (std::uint64_t column = 0; column < side; ++column) into[column] += factor * from[column];
    }
  }
}

void run_gate(void** arguments, const LaunchShape&) {
  const auto* open = argument<const std::uint64_t*>(arguments, 0);
  const auto value = argument<std::uint64_t>(arguments, 1);
  const auto spin_limit = argument<std::uint64_t>(arguments, 2);
  auto* gave_up = argument<std::uint64_t*>(arguments, 3);
  if (!wait_for(open, value, spin_limit)) *gave_up = 1;
}

constexpr std::uint8_t kFillArguments[] = {8, 8, 4, 4, 8, 4, 4, 8};
constexpr std::uint8_t kCheckArguments[] = {8, 8, 4, 4, 8, 4, 4, 8, 8};
constexpr std::uint8_t kReduceArguments[] = {8, 8, 4, 8, 4, 4};
constexpr std::uint8_t kCopyArguments[] = {8, 8, 8};
constexpr std::uint8_t kBothWaysArguments[] = {8, 8, 8, 8, 8};
constexpr std::uint8_t kChaseArguments[] = {8, 8, 8};
constexpr std::uint8_t kChaseInTurnArguments[] = {8, 8, 8, 4};
constexpr std::uint8_t kFlagPingpongArguments[] = {8, 8, 8, 8, 4, 8, 8, 4};
constexpr std::uint8_t kGemmArguments[] = {8, 8, 8, 8};
constexpr std::uint8_t kGateArguments[] = {8, 8, 8, 8};

struct Named {
  std::string_view name;
  HostKernel kernel;
};
const std::array<Named, 12> kKernels{{{kKernelFill, {run_fill, kFillArguments}},
                                      {kKernelCheck, {run_check, kCheckArguments}},
                                      {kKernelReduce, {run_reduce, kReduceArguments}},
                                      {kKernelAllreduce, {run_allreduce, allreduce_argument_bytes()}},
                                      {kKernelCopy, {run_copy, kCopyArguments}},
                                      {kKernelBothWays, {run_both_ways, kBothWaysArguments}},
                                      {kKernelGemm, {run_gemm, kGemmArguments}},
                                      {kKernelEmpty, {run_empty, {}}},
                                      {kKernelChase, {run_chase, kChaseArguments}},
                                      {kKernelChaseInTurn, {run_chase_in_turn, kChaseInTurnArguments}},
                                      {kKernelFlagPingpong, {run_flag_pingpong, kFlagPingpongArguments}},
                                      {kKernelGate, {run_gate, kGateArguments}}}};

}  // namespace

HostKernel host_kernel(std::string_view name) {
  std::string expected;
  for (const Named& entry : kKernels) {
    if (entry.name == name) return entry.kernel;
    expected += (expected.empty() ? "" : ", ") + std::string(entry.name);
  }
  for (std::uint32_t datatype = 0; datatype < std::size(kKernelsAllreducePush); ++datatype) {
    if (kKernelsAllreducePush[datatype] == name) return {run_allreduce_push(datatype), allreduce_push_argument_bytes()};
    expected += std::string(", ") + kKernelsAllreducePush[datatype];
  }
  throw CallerError("unknown kernel '" + std::string(name) + "', expected one of: " + expected);
}

}  // namespace linkgauge
