// What the timed loop adds to the bare operation: inside of a sample's clock readings, and to the loop from one sample
// to the next, barrier excluded (free arrivals, one rank).
//
//   ./timed_loop [SAMPLES]   prints one line of JSON, times in nanoseconds
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "measure/sampler.h"

namespace linkgauge {
namespace {

// A dependent chain of multiplications: its time depends neither on memory nor on what runs beside it.
class ChainOperation final : public Operation {
 public:
  explicit ChainOperation(int steps) : steps_(steps) {}
  void prepare() override {}
  void fill(std::uint64_t /*seed*/) override {}
  void post() override {
    std::uint64_t value = value_;
    for (int i = 0; i < steps_; ++i) value = value * 6364136223846793005U + 1442695040888963407U;
    value_ = value;
  }
  void complete() override {
    // The next clock reading must not overtake the chain.
    asm volatile("" : : "r"(value_) : "memory");
  }
  VerifyResult verify(std::uint64_t /*seed*/) override { return {}; }
  void release() noexcept override {}
  int lane() const override { return 0; }
  Progress progress() const override { return {}; }
  void library_barrier() override {}

 private:
  int steps_;
  std::uint64_t value_ = 1;
};

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One bare operation: the shortest of many batches, through the same virtual calls.
double bare_ns(Operation& operation) {
  constexpr int kBatches = 400;
  constexpr int kOperations = 200;
  std::vector<double> batches;
  for (int batch = 0; batch < kBatches; ++batch) {
    const std::int64_t start_ns = now_ns();
    for (int i = 0; i < kOperations; ++i) {
      operation.post();
      operation.complete();
    }
    batches.push_back(static_cast<double>(now_ns() - start_ns) / kOperations);
  }
  return median_of(std::move(batches));
}

int run(std::int64_t samples) {
  const auto groups = make_thread_groups(1);
  ChainOperation operation(500);
  Operation& opaque = operation;
  Timing timing;
  timing.arrival = Arrival::kFree;
  timing.stop.kind = StopRuleKind::kCount;
  timing.stop.samples = samples;
  timing.stop.time_ns = 60'000'000'000;
  SamplerSettings settings;
  settings.host_clock = measure_host_clock();
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> phase{0};
  settings.heartbeat = {&count, &phase};

  // Bare and timed in turn, so that both see the same clock rate of the core.
  std::vector<double> inside;
  std::vector<double> whole;
  std::vector<double> bare;
  for (int turn = 0; turn < 15; ++turn) {
    const double bare_before = bare_ns(opaque);
    const Measurement measured = sample(operation, *groups[0], timing, settings);
    const double bare_now = std::min(bare_before, bare_ns(opaque));
    std::vector<double> times;
    std::vector<double> steps;  // from one start to the next, those across a meeting of the ranks are rare outliers
    const Sample* before = nullptr;
    for (const Sample& each : measured.samples) {
      if (each.phase != Phase::kSample) continue;
      times.push_back(static_cast<double>(each.ns));
      if (before != nullptr) steps.push_back(static_cast<double>(each.start_ns - before->start_ns));
      before = &each;
    }
    bare.push_back(bare_now);
    inside.push_back(median_of(std::move(times)) - bare_now);
    whole.push_back(median_of(std::move(steps)) - bare_now);
  }
  const double clock_ns = settings.host_clock.cost_ns;
  const double added_ns = median_of(whole) - 2 * clock_ns;
  std::printf(
      "{\"bare_ns\": %.1f, \"clock_read_ns\": %.1f, \"added_inside_sample_ns\": %.1f, \"added_per_iteration_ns\": "
      "%.1f, "
      "\"added_beyond_two_clock_reads_ns\": %.1f}\n",
      median_of(bare), clock_ns, median_of(inside), median_of(whole), added_ns);
  return 0;
}

}  // namespace
}  // namespace linkgauge

int main(int argc, char** argv) { return linkgauge::run(argc > 1 ? std::atoll(argv[1]) : 20'000); }
