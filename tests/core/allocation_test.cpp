// The loop of samples takes no memory: what a measurement allocates does not grow with its samples.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "fake_operation.h"
#include "measure/sampler.h"
#include "on_threads.h"

namespace {

std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inlined: the compiler would take the pair for a mismatch of new and free.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted(bytes); }
// The library's own nothrow forms call these, a sanitizer's do not: all forms are replaced, so that each pair matches.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t& tag) noexcept {
  return operator new(bytes, tag);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

namespace linkgauge {
namespace {

std::int64_t allocations_of(std::int64_t samples, Cadence cadence) {
  Timing timing;
  timing.cadence = cadence;
  timing.batch = 2;
  timing.stop.kind = StopRuleKind::kCount;
  timing.stop.samples = samples;
  timing.stop.time_ns = 60'000'000'000;
  std::atomic<std::int64_t> taken{0};
  on_threads(2, [&](Group& group) {
    FakeOperation operation(group);
    SamplerSettings settings;
    settings.host_clock = {20, 0};
    const std::int64_t before = allocations;
    sample(operation, group, timing, settings);
    if (group.rank() == 0) taken = allocations - before;
  });
  return taken;
}

TEST(Allocation, DoesNotGrowWithTheSamples) {
  for (const Cadence cadence : {Cadence::kIsolated, Cadence::kStreaming, Cadence::kBarrier}) {
    const std::int64_t few = allocations_of(64, cadence);
    const std::int64_t many = allocations_of(512, cadence);
    EXPECT_GT(few, 0);
    // Rounds double, so 8 times the samples are three rounds more, each with some messages between the two ranks.
    EXPECT_LT(many - few, 150);
  }
}

}  // namespace
}  // namespace linkgauge
