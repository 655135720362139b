#include "device/host_kernels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/waiting.h"
#include "base/words.h"
#include "device/host_allreduce.h"
#include "kernels/direct_text.h"
#include "kernels/kernels.h"

namespace linkgauge {
namespace {

using values::u32;
using values::u64;

static_assert(kRawBytes == values::kRaw);

// Calls function(datatype, op) with both as compile-time constants, so that loops over elements are specialized.
template <typename Function, unsigned kIndex = 0>
void with_constants(unsigned datatype, unsigned op, Function&& function) {
  if (op == values::kRaw) {
    function(std::integral_constant<unsigned, values::kUint8>{}, std::integral_constant<unsigned, values::kRaw>{});
    return;
  }
  if constexpr (kIndex < values::kDatatypeCount * values::kReduceOpCount) {
    if (datatype == kIndex / values::kReduceOpCount && op == kIndex % values::kReduceOpCount) {
      function(std::integral_constant<unsigned, kIndex / values::kReduceOpCount>{},
               std::integral_constant<unsigned, kIndex % values::kReduceOpCount>{});
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
  u64 bytes;
  u64 seed;
  int rank;
  int ranks;
  u64 offset;
};

template <unsigned kDatatype, unsigned kOp>
void fill_range(std::byte* target, const Range range) {
  const values::Recipe recipe = values::recipe_of(kDatatype, kOp, range.ranks);
  for_each_word(range.bytes, range.offset, [=](u64 position, u64 word, u64 first, u64 count) {
    const u64 made = values::fill_word(kDatatype, kOp, range.seed, range.rank, recipe, word) >> (8 * first);
    std::memcpy(target + position, &made, count);
  });
}

void fill(const LaunchShape&, std::byte* target, u64 bytes, u32 datatype, u32 op, u64 seed, int rank, int ranks,
          u64 offset) {
  const Range range{bytes, seed, rank, ranks, offset};
  with_constants(datatype, op, [&](auto type, auto how) { fill_range<type(), how()>(target, range); });
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

void check(const LaunchShape&, const std::byte* data, u64 bytes, u32 datatype, u32 op, u64 seed, int rank, int ranks,
           u64 offset, CheckResult* result) {
  const Range range{bytes, seed, rank, ranks, offset};
  with_constants(datatype, op, [&](auto type, auto how) { check_range<type(), how()>(data, range, result); });
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
  // Integers are reckoned modulo 2^n, narrow floats in float32.
  using Type = typename elements::Element<kDatatype>::Stored;
  constexpr bool kNarrow = kDatatype >= values::kFloat16 && sizeof(Type) < sizeof(float);
  using Partial = std::conditional_t<kNarrow, float, Type>;
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
        if constexpr (kNarrow) {
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
      if constexpr (kNarrow) {
        loaded[i] = static_cast<Type>(values::encode_narrow(kDatatype, value));
      } else {
        loaded[i] = value;
      }
    }
    std::memcpy(target + begin * sizeof(Type), loaded.data(), length * sizeof(Type));
  }
}

void reduce(const LaunchShape&, std::byte* target, const void* const* sources, int count, u64 elements, u32 datatype,
            u32 op) {
  with_constants(datatype, op, [&](auto type, auto how) {
    if constexpr (how() != values::kRaw) reduce_strips<type(), how()>(target, sources, count, elements);
  });
}

typedef u64 Vector __attribute__((vector_size(16), aligned(1), may_alias));  // NOLINT(modernize-use-using)

// Loads and stores of the core, not the C library's memcpy. The empty asm keeps the compiler from making it one, and
// each cache line's stores together. GCC 13 kept an array in place of the eight variables on the stack, at a third of
// the rate.
void copy(const LaunchShape&, std::byte* target, const std::byte* source, u64 bytes) {
  constexpr u64 kStep = 8 * sizeof(Vector);
  u64 position = 0;
  for (; position + kStep <= bytes; position += kStep) {
    // Not auto, which would forget that they are unaligned.
    const Vector* from = reinterpret_cast<const Vector*>(source + position);  // NOLINT(modernize-use-auto)
    Vector* into = reinterpret_cast<Vector*>(target + position);
    const Vector a = from[0], b = from[1], c = from[2], d = from[3], e = from[4], f = from[5], g = from[6], h = from[7];
    into[0] = a;
    into[1] = b;
    into[2] = c;
    into[3] = d;
    asm volatile("" ::: "memory");
    into[4] = e;
    into[5] = f;
    into[6] = g;
    into[7] = h;
    asm volatile("" ::: "memory");
  }
  for (; position < bytes; ++position) {
    target[position] = source[position];
    asm volatile("" ::: "memory");
  }
}

void both_ways(const LaunchShape& shape, std::byte* target, const std::byte* source, std::byte* target_back,
               const std::byte* source_back, u64 bytes) {
  copy(shape, target, source, bytes);
  copy(shape, target_back, source_back, bytes);
}

void both_ways_repeated(const LaunchShape& shape, std::byte* target, const std::byte* source, std::byte* target_back,
                        const std::byte* source_back, u64 bytes, u64 times, u64 target_step, u64 source_step) {
  for (u64 start = 0; start < bytes; start += kChunkOfBothWays) {
    const u64 to = start * target_step, from = start * source_step;
    for (u64 i = 0; i < times; ++i) {
      both_ways(shape, target + to, source + from, target_back + to, source_back + from,
                std::min<u64>(kChunkOfBothWays, bytes - start));
    }
  }
}

void empty(const LaunchShape&) {}

void chase(const LaunchShape&, void* const* place, u64 loads, void** end) {
  for (u64 i = 0; i < loads; ++i) place = static_cast<void* const*>(*const_cast<void* const volatile*>(place));
  *end = const_cast<void*>(static_cast<const void*>(place));
}

// The block that walks is of no concern here: a host device has one core.
void chase_in_turn(const LaunchShape& shape, void* const* place, u64 loads, void** ends, u32 walker) {
  chase(shape, place, loads, ends + walker);
}

// Waits until *flag >= value, at most `spin_limit` looks; yields now and then, since the other side may need this core.
bool wait_for(const u64* flag, u64 value, u64 spin_limit, std::memory_order order = std::memory_order_acquire) {
  constexpr u64 kSpinsPerYield = 4096;
  std::atomic_ref<u64> shared(*const_cast<u64*>(flag));
  for (u64 spin = 1; spin <= spin_limit; ++spin) {
    if (shared.load(order) >= value) return true;
    if (spin % kSpinsPerYield == 0) give_way();
  }
  return false;
}

void flag_pingpong(const LaunchShape&, u64* mine, u64* theirs, u64 first, u64 rounds, int starter, u64 spin_limit,
                   u64* gave_up, int relaxed) {
  const std::memory_order written = relaxed != 0 ? std::memory_order_relaxed : std::memory_order_release;
  std::atomic_ref<u64> signal(*theirs);
  for (u64 round = first; round < first + rounds; ++round) {
    if (starter != 0) signal.store(round, written);
    if (!wait_for(mine, round, spin_limit, relaxed != 0 ? std::memory_order_relaxed : std::memory_order_acquire)) {
      *gave_up = round;
      return;
    }
    if (starter == 0) signal.store(round, written);
  }
}

void gemm(const LaunchShape&, float* product, const float* left, const float* right, u64 side) {
  for (u64 row = 0; row < side; ++row) {
    float* const into = product + row * side;
    std::fill_n(into, side, 0.0F);
    for (u64 k = 0; k < side; ++k) {
      const float factor = left[row * side + k];
      const float* const from = right + k * side;
      for (u64 column = 0; column < side; ++column) into[column] += factor * from[column];
    }
  }
}

void gate(const LaunchShape&, const u64* open, u64 value, u64 spin_limit, u64* gave_up) {
  if (!wait_for(open, value, spin_limit)) *gave_up = 1;
}

struct NamedKernel {
  std::string_view name;
  HostKernel kernel;
};

std::vector<NamedKernel> all_kernels() {
  std::vector<NamedKernel> all{{kKernelFill, kernel_of<fill>()},
                               {kKernelCheck, kernel_of<check>()},
                               {kKernelReduce, kernel_of<reduce>()},
                               {kKernelAllreduce, host_allreduce()},
                               {kKernelCopy, kernel_of<copy>()},
                               {kKernelBothWays, kernel_of<both_ways>()},
                               {kKernelBothWaysRepeated, kernel_of<both_ways_repeated>()},
                               {kKernelGemm, kernel_of<gemm>()},
                               {kKernelEmpty, kernel_of<empty>()},
                               {kKernelChase, kernel_of<chase>()},
                               {kKernelChaseInTurn, kernel_of<chase_in_turn>()},
                               {kKernelFlagPingpong, kernel_of<flag_pingpong>()},
                               {kKernelGate, kernel_of<gate>()}};
  for (u32 datatype = 0; datatype < values::kDatatypeCount; ++datatype) {
    all.push_back({kKernelsAllreducePush[datatype], host_allreduce_push(datatype)});
  }
  return all;
}

}  // namespace

HostKernel host_kernel(std::string_view name) {
  static const std::vector<NamedKernel> all = all_kernels();
  return named("kernel", name, all, [](const NamedKernel& one) { return one.name; }).kernel;
}

}  // namespace linkgauge
