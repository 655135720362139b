// Fill and check: the data patterns of values.h on the device. Untimed, but large buffers are checked whole.

namespace linkgauge {

// kernels.h, CheckResult.
struct CheckFound {
  u64 bad_bytes;
  u64 first_bad_offset;
  u64 expected;
  u64 found;
};

// The bytes of word `word` of the stream that lie in the range: [first, last) in the range's own offsets.
struct WordPlace {
  u64 first;
  u64 last;
};
__device__ __forceinline__ WordPlace place_of(u64 word, u64 bytes, u64 offset) {
  const u64 start = 8 * word;
  WordPlace place;
  place.first = start > offset ? start - offset : 0;
  const u64 end = start + 8 - offset;
  place.last = end < bytes ? end : bytes;
  return place;
}

__device__ __forceinline__ u64 word_count(u64 bytes, u64 offset) {
  return bytes == 0 ? 0 : (offset + bytes - 1) / 8 - offset / 8 + 1;
}

__device__ __forceinline__ bool whole_and_aligned(const unsigned char* data, const WordPlace& place) {
  return place.last - place.first == 8 && reinterpret_cast<u64>(data + place.first) % 8 == 0;
}

__device__ __forceinline__ u64 thread_number() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 thread_count() { return static_cast<u64>(gridDim.x) * blockDim.x; }

// Calls, not inlined copies: the reckoning of small values is long, and compiling it once is what start-up waits for.
__device__ __noinline__ u64 reduced_word(u32 datatype, u32 op, u64 seed, const values::Recipe& recipe, u64 word) {
  __builtin_assume(op != values::kRaw);
  return values::expected_word(datatype, op, seed, 0, recipe, word);
}
__device__ __noinline__ u64 small_word(u32 datatype, u32 op, u64 seed, int rank, const values::Recipe& recipe,
                                       u64 word) {
  __builtin_assume(rank >= 0);
  __builtin_assume(op != values::kRaw);
  return values::fill_word(datatype, op, seed, rank, recipe, word);
}

// values::expected_word and values::fill_word, with raw bytes as the short way.
__device__ __forceinline__ u64 wanted_word(u32 datatype, u32 op, u64 seed, int rank, const values::Recipe& recipe,
                                             u64 word) {
  if (op == values::kRaw) return values::raw_word(values::stream_key(seed, rank), word);
  return reduced_word(datatype, op, seed, recipe, word);
}
__device__ __forceinline__ u64 written_word(u32 datatype, u32 op, u64 seed, int rank, const values::Recipe& recipe,
                                         u64 word) {
  if (rank < 0) return ~wanted_word(datatype, op, seed, -1 - rank, recipe, word);
  if (op == values::kRaw) return values::raw_word(values::stream_key(seed, rank), word);
  return small_word(datatype, op, seed, rank, recipe, word);
}

// Puts expected and found of the first bad element into the result. Whoever sees that another thread found an earlier
// one starts anew, so that after the last of them the fields belong to the final first_bad_offset.
__device__ void report_first(const unsigned char* data, u64 bytes, u32 datatype, u32 op, u64 seed, int rank,
                             const values::Recipe& recipe, u64 offset, CheckFound* result) {
  const volatile u64* first = &result->first_bad_offset;
  u64 reported = ~0ULL;
  while (reported != *first) {
    reported = *first;
    const u64 place = offset + reported;  // in the stream
    const u32 width = op == values::kRaw ? 1 : values::element_bytes(datatype);
    const u64 element = place / width * width;
    u64 expected = 0;
    u64 found = 0;
    for (u32 i = 0; i < width; ++i) {
      const u64 at = element + i;
      if (at < offset || at - offset >= bytes) continue;  // an element that the range cuts
      const u64 word = wanted_word(datatype, op, seed, rank, recipe, at / 8);
      expected |= static_cast<u64>(values::byte_of(word, at)) << (8 * i);
      found |= static_cast<u64>(data[at - offset]) << (8 * i);
    }
    *const_cast<volatile u64*>(&result->expected) = expected;
    *const_cast<volatile u64*>(&result->found) = found;
    __threadfence_system();
  }
}

}  // namespace linkgauge

extern "C" {

__global__ void lg_fill(void* target, unsigned long long bytes, unsigned int datatype, unsigned int op,
                        unsigned long long seed, int rank, int ranks, unsigned long long offset_bytes) {
  using namespace linkgauge;
  auto* data = static_cast<unsigned char*>(target);
  const values::Recipe recipe = values::recipe_of(datatype, op, ranks);
  const u64 words = word_count(bytes, offset_bytes);
  for (u64 i = thread_number(); i < words; i += thread_count()) {
    const u64 word = offset_bytes / 8 + i;
    const WordPlace place = place_of(word, bytes, offset_bytes);
    const u64 value = written_word(datatype, op, seed, rank, recipe, word);
    if (whole_and_aligned(data, place)) {
      *reinterpret_cast<u64*>(data + place.first) = value;
    } else {
      for (u64 at = place.first; at < place.last; ++at)
        data[at] = static_cast<unsigned char>(values::byte_of(value, offset_bytes + at));
    }
  }
}

__global__ void lg_check(const void* checked, unsigned long long bytes, unsigned int datatype, unsigned int op,
                         unsigned long long seed, int rank, int ranks, unsigned long long offset_bytes,
                         void* check_result) {
  using namespace linkgauge;
  const auto* data = static_cast<const unsigned char*>(checked);
  auto* result = static_cast<CheckFound*>(check_result);
  const values::Recipe recipe = values::recipe_of(datatype, op, ranks);
  const u64 words = word_count(bytes, offset_bytes);
  u64 bad = 0;
  u64 first_bad = ~0ULL;
  for (u64 i = thread_number(); i < words; i += thread_count()) {
    const u64 word = offset_bytes / 8 + i;
    const WordPlace place = place_of(word, bytes, offset_bytes);
    const u64 expected = wanted_word(datatype, op, seed, rank, recipe, word);
    if (whole_and_aligned(data, place) && *reinterpret_cast<const u64*>(data + place.first) == expected) continue;
    for (u64 at = place.first; at < place.last; ++at) {
      if (data[at] == values::byte_of(expected, offset_bytes + at)) continue;
      if (bad == 0) {  // the first byte of the element
        const u64 width = op == values::kRaw ? 1 : values::element_bytes(datatype);
        const u64 element = (offset_bytes + at) / width * width;
        first_bad = element > offset_bytes ? element - offset_bytes : 0;
      }
      ++bad;
    }
  }
  if (bad == 0) return;
  atomicAdd(&result->bad_bytes, bad);
  atomicMin(&result->first_bad_offset, first_bad);
  __threadfence_system();
  report_first(data, bytes, datatype, op, seed, rank, recipe, offset_bytes, result);
}

}  // extern "C"
