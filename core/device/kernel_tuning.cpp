#include "device/kernel_tuning.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "device/choosing.h"
#include "kernels/kernel_source.h"
#include "kernels/kernels.h"

namespace linkgauge {
namespace {

// Rounds of a knock-out: many variants roughly, few of them well; in `passes` over all, so that another's burst does
// not hit all times of one. Sizes above the first round's share one choice, since that is enough for the steady state
// of any link. Where so many bytes take less than kSteadyNs, inside a device's own memory, more are copied: grids for
// the whole size would have blocks without work. Where they take longer than longest_ns, on a link to the host, fewer:
// a hundred variants of 64 MiB over PCIe would take a second. What the last round does not tell apart has kMorePasses:
// on H100 the five of the last left 2 % to chance inside a device.
struct Round {
  std::size_t most_variants;
  std::size_t most_bytes;
  int passes;
  double longest_ns;
};
constexpr std::size_t kSteadyBytes = std::size_t{64} << 20;
constexpr Round kRough{1000, kSteadyBytes, 2, 300'000};
constexpr Round kCloser{24, std::size_t{128} << 20, 3, 600'000};
constexpr Round kFinal{7, std::size_t{256} << 20, 5, 1'500'000};
constexpr int kMorePasses = 20;
constexpr double kSteadyNs = 200'000;
// Events resolve about half a microsecond: below 1 % of an interval of this length.
constexpr double kIntervalNs = 60'000;
constexpr std::size_t kWordBytes = 16;

struct Unrolled {
  const char* kernel;
  unsigned words;  // that a thread has under way
  unsigned most_threads;
};
constexpr std::array<Unrolled, 5> kUnrolled{{{kKernelCopyU1, 1, 1024},
                                             {kKernelCopyU2, 2, 1024},
                                             {kKernelCopy, 4, 1024},
                                             {kKernelCopyU8, 8, 1024},
                                             {kKernelCopyU16, 16, 512}}};

// Of what was compiled for the device, which may be for an older one (KernelCompiler::target_for).
bool has_bulk(DeviceRuntime& runtime, int device) {
  if (cuda_architecture(runtime.describe(device).architecture) < 90) return false;
  try {
    return runtime.kernel(device, kKernelCopyBulk) != nullptr;
  } catch (const Unsupported&) {
    return false;
  }
}

void add_unrolled(std::vector<CopyVariant>& variants, unsigned multiprocessors, std::size_t bytes, unsigned blocks) {
  for (const Unrolled& unrolled : kUnrolled) {
    for (const unsigned threads : {128U, 256U, 512U, 1024U}) {
      if (threads > unrolled.most_threads) continue;
      // More blocks than tiles have nothing to do.
      const std::uint64_t tiles = bytes / (kWordBytes * threads * unrolled.words) + 1;
      if (blocks > 0) {
        variants.push_back({unrolled.kernel, {blocks, threads, 0}});
        continue;
      }
      unsigned before = 0;
      for (const unsigned each : {1U, 2U, 4U, 8U, 16U, 32U}) {
        if (each * threads > 8192) continue;  // four times what a multiprocessor holds at once
        const auto grid = static_cast<unsigned>(std::min<std::uint64_t>(tiles, std::uint64_t{multiprocessors} * each));
        if (grid != before) variants.push_back({unrolled.kernel, {grid, threads, 0}});
        before = grid;
      }
    }
  }
}

// Shared memory that the device gives to a block, in bytes: 227 KiB on sm_90, 163 on sm_80, 99 on parts of sm_120. A
// multiprocessor has 1 KiB more.
unsigned shared_bytes_of(DeviceRuntime& runtime, int device) {
  const DeviceInfo info = runtime.describe(device);
  const auto found = info.attributes.find("shared_bytes_a_block");
  return found == info.attributes.end() ? 0 : static_cast<unsigned>(std::max(0, std::atoi(found->second.c_str())));
}

void add_bulk(std::vector<CopyVariant>& variants, unsigned multiprocessors, unsigned shared_bytes, std::size_t bytes,
              unsigned blocks) {
  constexpr unsigned kWarp = 32;
  constexpr std::size_t kLeastBytes = std::size_t{64} << 10;  // below, filling the ring costs more than it gives
  if (bytes < kLeastBytes) return;
  // Shared memory of a block is its ring of 8 chunks.
  for (const unsigned ring : {16U << 10, 32U << 10, 64U << 10, 100U << 10, 200U << 10}) {
    if (ring > shared_bytes) continue;
    unsigned before = 0;
    const std::uint64_t chunks = bytes / (ring / 8) + 1;
    const std::array<unsigned, 6> grids{
        16, multiprocessors / 4, multiprocessors / 2, multiprocessors, 2 * multiprocessors, 4 * multiprocessors};
    for (const unsigned wanted : grids) {
      if (blocks == 0 && (wanted == 0 || wanted * (ring >> 10) > multiprocessors * (shared_bytes >> 10))) {
        continue;  // not at once
      }
      const unsigned grid = blocks > 0 ? blocks : static_cast<unsigned>(std::min<std::uint64_t>(chunks, wanted));
      if (grid != before) variants.push_back({kKernelCopyBulk, {grid, kWarp, ring}});
      before = grid;
    }
  }
}

class Interval {
 public:
  Interval(DeviceRuntime& runtime, int device) : runtime_(runtime), start_(runtime, device), stop_(runtime, device) {}

  template <typename Queue>
  double time_ns(StreamHandle stream, const Queue& queue) {
    runtime_.record(start_.handle(), stream);
    queue();
    runtime_.record(stop_.handle(), stream);
    runtime_.synchronize_event(stop_.handle());
    return static_cast<double>(runtime_.elapsed_ns(start_.handle(), stop_.handle()));
  }

 private:
  DeviceRuntime& runtime_;
  Event start_;
  Event stop_;
};

// `parameters`: of the variant's kernel.
template <typename... Parameters>
double launch_time_ns(DeviceRuntime& runtime, int device, const CopyVariant& variant, int repeats,
                      Parameters... parameters) {
  Stream stream(runtime, device);
  Interval interval(runtime, device);
  const KernelHandle kernel = runtime.kernel(device, variant.kernel);
  const auto launches = [&](int count) {
    return interval.time_ns(stream.handle(), [&] {
      for (int i = 0; i < count; ++i) runtime.launch_with(kernel, variant.shape, stream.handle(), parameters...);
    });
  };
  const double first = launches(1);  // also the warm-up
  const int count = static_cast<int>(std::clamp(kIntervalNs / std::max(first, 1.0), 1.0, 30.0));
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < repeats; ++i) best = std::min(best, launches(count) / count);
  return best;
}

// Of the candidates `left`, in their order, the default one, which is the first, and those of the shortest times.
std::vector<std::size_t> shortest(const std::vector<std::size_t>& left, const RoundsOfTimes& rounds, std::size_t most) {
  std::vector<std::pair<double, std::size_t>> times;
  for (std::size_t i = 0; i < left.size(); ++i) {
    double least = std::numeric_limits<double>::max();
    for (const std::vector<double>& round : rounds) least = std::min(least, round[i]);
    times.emplace_back(least, left[i]);
  }
  std::sort(times.begin() + 1, times.end());
  times.resize(std::min(most, times.size()));
  std::vector<std::size_t> kept;
  for (const auto& [time, candidate] : times) kept.push_back(candidate);
  std::sort(kept.begin(), kept.end());
  return kept;
}

struct Told {
  CopyVariant variant;
  bool clear;
};

// The variant that the last round chooses, by time_ns(variant, round).
template <typename TimeNs>
Told knock_out(const std::vector<CopyVariant>& variants, std::initializer_list<Round> rounds, const TimeNs& time_ns) {
  if (variants.size() == 1) return {variants.front(), true};
  std::vector<std::size_t> left(variants.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  RoundsOfTimes times;
  const auto measure = [&](const Round& round, int passes) {
    times = timed_in_rounds(left.size(), {passes, passes},
                            [&](std::size_t i) { return Trial{time_ns(variants[left[i]], round)}; });
  };
  for (const Round& round : rounds) {
    if (!times.empty()) left = shortest(left, times, round.most_variants);
    measure(round, round.passes);
  }
  Choice choice = choose_by_times(times);
  if (!choice.clear) {
    std::vector<std::size_t> alike;
    for (const std::size_t one : choice.within) alike.push_back(left[one]);
    left = std::move(alike);
    measure(*(rounds.end() - 1), kMorePasses);
    choice = choose_by_times(times);
  }
  return {variants[left[choice.index]], choice.clear};
}

// What is copied in a round of at most `most` bytes, where `probed` of them took `probe_ns`.
std::size_t copied_in(const Round& round, std::size_t most, std::size_t probed, double probe_ns) {
  const double longest = static_cast<double>(probed) * round.longest_ns / std::max(probe_ns, 1.0);
  // Compared before it is made a whole number, which a large one may not fit.
  return longest < static_cast<double>(most) ? std::max(static_cast<std::size_t>(longest), kWordBytes) : most;
}

Told measured(DeviceRuntime& runtime, const CopyPath& path, void* target, const void* source, std::size_t bytes,
              int blocks) {
  const int device = path.device;
  const std::vector<CopyVariant> variants = copy_variants(runtime, device, bytes, blocks);
  const std::size_t probed = std::min(bytes, kSteadyBytes);
  const double probe_ns = copy_time_ns(runtime, device, variants[variants.size() / 2], target, source, probed, 1);
  const auto steady =
      static_cast<std::size_t>(static_cast<double>(probed) * std::max(1.0, kSteadyNs / std::max(probe_ns, 1.0)));
  return knock_out(variants, {kRough, kCloser, kFinal}, [&](const CopyVariant& variant, const Round& round) {
    const std::size_t most = std::min(bytes, std::max(steady, round.most_bytes));
    return copy_time_ns(runtime, device, variant, target, source, copied_in(round, most, probed, probe_ns), 1);
  });
}

// What a choice is remembered by. Ordinals alone would mix up runtimes opened for other devices.
using Key = std::tuple<std::string, std::string, std::string, unsigned, int>;

unsigned magnitude(std::size_t bytes) { return static_cast<unsigned>(std::bit_width(std::min(bytes, kSteadyBytes))); }

// A first measurement may be a noisy one, which none that is kept should be.
CopyVariant remembered(const Key& key, const std::function<Told()>& measure) {
  static std::mutex mutex;
  static std::map<Key, Told> chosen;
  const std::lock_guard lock(mutex);
  const auto known = chosen.find(key);
  if (known != chosen.end() && known->second.clear) return known->second.variant;
  Told told = measure();
  if (known != chosen.end() && known->second.variant == told.variant) told.clear = true;
  chosen[key] = told;
  return told.variant;
}

// Puts the variant of 512 threads and 4 blocks a multiprocessor, or what there is below, to the front.
void default_first(std::vector<CopyVariant>& variants, const char* kernel, unsigned multiprocessors, int blocks) {
  auto found = variants.begin();
  for (auto variant = variants.begin(); variant != variants.end(); ++variant) {
    if (variant->kernel != kernel || variant->shape.threads != 512) continue;
    if (blocks > 0 || variant->shape.blocks <= 4 * multiprocessors) found = variant;
  }
  std::rotate(variants.begin(), found, found + 1);
}

// From what half fills the multiprocessors to blocks of a few tiles each, which end together.
std::vector<CopyVariant> both_ways_variants(DeviceRuntime& runtime, int device, int blocks) {
  const unsigned multiprocessors = runtime.multiprocessors(device);
  std::vector<CopyVariant> variants;
  for (const char* kernel : {kKernelBothWays, kKernelBothWaysU8}) {
    for (const unsigned threads : {256U, 512U, 1024U}) {
      if (blocks > 0) {
        variants.push_back({kernel, {static_cast<unsigned>(blocks), threads, 0}});
        continue;
      }
      for (unsigned each = 1024 / threads; each * threads <= 16384; each *= 2)
        variants.push_back({kernel, {multiprocessors * each, threads, 0}});
    }
  }
  default_first(variants, kKernelBothWays, multiprocessors, blocks);
  return variants;
}

std::string place(DeviceRuntime& runtime, int device) {
  if (device == kMovingPages) return "moving pages";
  return device < 0 ? "host" : runtime.describe(device).uuid;
}

}  // namespace

std::vector<CopyVariant> copy_variants(DeviceRuntime& runtime, int device, std::size_t bytes, int blocks) {
  const auto fixed = static_cast<unsigned>(std::max(0, blocks));
  std::vector<CopyVariant> variants;
  if (!kernels_are_tried(runtime)) {
    variants.push_back({kKernelCopy, {std::max(1U, fixed), 1, 0}});
    return variants;
  }
  const unsigned multiprocessors = runtime.multiprocessors(device);  // describes it: files are read
  add_unrolled(variants, multiprocessors, bytes, fixed);
  if (has_bulk(runtime, device)) {
    add_bulk(variants, multiprocessors, shared_bytes_of(runtime, device), bytes, fixed);
  }
  default_first(variants, kKernelCopy, multiprocessors, blocks);
  return variants;
}

double copy_time_ns(DeviceRuntime& runtime, int device, const CopyVariant& variant, void* target, const void* source,
                    std::size_t bytes, int repeats) {
  return launch_time_ns(runtime, device, variant, repeats, target, source, std::uint64_t{bytes});
}

CopyVariant fastest_copy(DeviceRuntime& runtime, const CopyPath& path, void* target, const void* source,
                         std::size_t bytes, int blocks) {
  if (!kernels_are_tried(runtime)) return copy_variants(runtime, path.device, bytes, blocks).front();
  const Key key{place(runtime, path.device), place(runtime, path.target_device), place(runtime, path.source_device),
                magnitude(bytes), blocks};
  return remembered(key, [&] { return measured(runtime, path, target, source, bytes, blocks); });
}

CopyVariant fastest_both_ways(DeviceRuntime& runtime, int device, const BothWays& ways, std::size_t bytes, int blocks) {
  const std::string both = "both ways";
  return remembered({place(runtime, device), both, both, magnitude(bytes), blocks}, [&] {
    const auto time_ns = [&](const CopyVariant& variant, std::uint64_t length) {
      return launch_time_ns(runtime, device, variant, 1, ways.target, ways.source, ways.target_back, ways.source_back,
                            length);
    };
    const std::vector<CopyVariant> variants = both_ways_variants(runtime, device, blocks);
    const std::size_t probed = std::min(bytes, kSteadyBytes);
    const double probe_ns = time_ns(variants[variants.size() / 2], probed);
    return knock_out(variants, {kRough, kFinal}, [&](const CopyVariant& variant, const Round& round) {
      const std::size_t most = std::min(bytes, round.most_bytes);
      return time_ns(variant, copied_in(round, most, probed, probe_ns));
    });
  });
}

}  // namespace linkgauge
