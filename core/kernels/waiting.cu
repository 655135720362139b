// Kernels that wait, follow pointers, or do nothing. Every wait is bounded.

namespace linkgauge {

template <bool kRelaxed>
__device__ __forceinline__ void play(u64* mine, u64* theirs, u64 first, u64 rounds, bool starts, u64 spin_limit,
                                     u64* gave_up) {
  const auto write = [&](u64 round) {
    if (kRelaxed) {
      store_relaxed_system(theirs, round);
    } else {
      store_release_system(theirs, round);
    }
  };
  for (u64 round = first; round < first + rounds; ++round) {
    if (starts) write(round);
    if (!wait_for<kRelaxed>(mine, round, spin_limit)) {
      store_release_system(gave_up, round);
      return;
    }
    if (!starts) write(round);
  }
}

}  // namespace linkgauge

extern "C" {

__global__ void lg_empty() {}

__global__ void lg_chase(const void* start, unsigned long long loads, const void** end) {
  using namespace linkgauge;
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  const void* place = start;
  for (u64 i = 0; i < loads; ++i) place = load_pointer(place);
  *end = place;  // keeps the loads
}

// As nvbandwidth walks: of a grid with one block for each multiprocessor the block `walker` alone does, by plain loads.
__global__ void lg_chase_in_turn(const void* start, unsigned long long loads, const void** ends, unsigned int walker) {
  using namespace linkgauge;
  if (blockIdx.x != walker || threadIdx.x != 0) return;
  const void* place = start;
  for (u64 i = 0; i < loads; ++i) place = *static_cast<const void* const*>(place);
  ends[walker] = place;  // keeps the loads
}

// One thread on each of two devices (or one and the host): round r is the starter's write of r to the other's flag, and
// the other's answer.
__global__ void lg_flag_pingpong(unsigned long long* mine, unsigned long long* theirs, unsigned long long first,
                                 unsigned long long rounds, int starter, unsigned long long spin_limit,
                                 unsigned long long* gave_up, int relaxed) {
  using namespace linkgauge;
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  if (relaxed != 0) {
    play<true>(mine, theirs, first, rounds, starter != 0, spin_limit, gave_up);
  } else {
    play<false>(mine, theirs, first, rounds, starter != 0, spin_limit, gave_up);
  }
}

__global__ void lg_gate(const volatile unsigned long long* open, unsigned long long value,
                        unsigned long long spin_limit, unsigned long long* gave_up) {
  using namespace linkgauge;
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  if (!wait_for(open, value, spin_limit)) store_release_system(gave_up, 1);
}

}  // extern "C"
