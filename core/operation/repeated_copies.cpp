// host_device_bidirectional, variant repeated: both ways by one kernel that copies each word 16 times in a row, over
// one pair of buffers, as nvbandwidth's splitWarpCopyKernel does (kernels.cu). Both matter: on two GPUs with one host
// the repetition is worth 18 %, and a pair of buffers for each way costs 1 to 5 % (docs/results/two-gpus.md).
#include <string>
#include <utility>

#include "kernels/kernels.h"
#include "operation/device_patterns.h"
#include "transport/copy_leg.h"
#include "transport/device_pattern.h"

namespace linkgauge {
namespace {

constexpr char kRepeated[] = "repeated";
constexpr std::size_t kRepeats = 16;  // nvbandwidth's loop count; a way has this share of the size
constexpr std::size_t kWordBytes = 16;
constexpr unsigned kThreads = 1024;  // half of them for each way, a word each

class RepeatedCopies final : public DevicePattern {
 public:
  using DevicePattern::DevicePattern;

  // What is to be moved and what is overwritten are made apart, and dealt out to the chunks of the two buffers.
  void fill(std::uint64_t seed) override {
    for (std::size_t way = 0; way < 2; ++way) data().fill(apart_[way], piece(way), false, seed);
    launch({host(0), apart_[0].data(), near(1), apart_[1].data()}, 1, kEverySecond, kEach);
    wait();
    for (std::size_t way = 0; way < 2; ++way) data().poison(apart_[way], piece(way), seed);
    launch({near(0), apart_[0].data(), host(1), apart_[1].data()}, 1, kEverySecond, kEach);
    wait();
  }
  void post() override { launch(both(), kRepeats, kEverySecond, kEverySecond); }
  VerifyResult verify(std::uint64_t seed) override {
    launch({apart_[0].data(), near(0), apart_[1].data(), host(1)}, 1, kEach, kEverySecond);
    wait();
    VerifyResult result;
    for (std::size_t way = 0; way < 2; ++way) data().check(apart_[way], piece(way), seed, result);
    return result;
  }

 private:
  static constexpr std::uint64_t kEach = 1;
  static constexpr std::uint64_t kEverySecond = 2;

  std::size_t bytes() const { return traffic().bytes() / kRepeats; }  // of one way
  void* host(std::size_t chunk) const { return host_.at(chunk * kChunkOfBothWays); }
  void* near(std::size_t chunk) const { return near_.at(chunk * kChunkOfBothWays); }
  BothWays both() const { return {near(0), host(0), host(1), near(1)}; }
  Piece piece(std::size_t way) const { return {0, bytes(), 2 * rank() + static_cast<int>(way), 0, false}; }
  void launch(BothWays ways, std::uint64_t times, std::uint64_t target_step, std::uint64_t source_step) {
    runtime().launch_with(kernel_, shape_, stream(), ways.target, ways.source, ways.target_back, ways.source_back,
                          std::uint64_t{bytes()}, times, target_step, source_step);
  }
  void wait() { DevicePattern::complete(); }

  void allocate() override {
    const std::size_t chunks = (bytes() + kChunkOfBothWays - 1) / kChunkOfBothWays;
    const auto pair = [&](const End& end) {
      return Buffer(runtime(), device(), end.kind, 2 * chunks * kChunkOfBothWays, end.options);
    };
    host_ = pair(spec().places.source);
    near_ = pair(spec().places.target);
    for (Buffer& buffer : apart_) buffer = Buffer(runtime(), device(), MemoryKind::kDevice, bytes());
    const auto all = static_cast<unsigned>((bytes() / kWordBytes + kThreads / 2 - 1) / (kThreads / 2));
    shape_ = {mechanism().blocks > 0 ? static_cast<unsigned>(mechanism().blocks) : all, kThreads, 0};
    kernel_ = runtime().kernel(device(), kKernelBothWaysRepeated);
    tell_choice(context(), {kKernelBothWaysRepeated, shape_});
  }
  void free_buffers() noexcept override {
    host_ = Buffer();
    near_ = Buffer();
    for (Buffer& buffer : apart_) buffer = Buffer();
  }

  Buffer host_;
  Buffer near_;      // the device's
  Buffer apart_[2];  // the data of each way without gaps, for its making and its check
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
};

}  // namespace

bool is_repeated(const CaseSpec& spec) {
  return spec.traffic.pattern == Pattern::kHostDeviceBidirectional && spec.mechanism.variant == kRepeated;
}

std::string why_not_repeated(const CaseSpec& spec) {
  const std::string pattern(to_string(spec.traffic.pattern));
  if (spec.mechanism.transport != "kernel" || spec.mechanism.variant != kRepeated) {
    return pattern + " by " + spec.mechanism.transport + " has no variant '" + spec.mechanism.variant +
           "'; its variant is repeated, by kernel";
  }
  if (spec.places.source.kind == MemoryKind::kManaged || spec.places.target.kind == MemoryKind::kManaged)
    return "variant repeated is between pinned or pageable memory and device memory; pages of managed memory move";
  constexpr auto kWhole = static_cast<std::int64_t>(kRepeats * kWordBytes);
  if (spec.traffic.size_bytes % kWhole != 0) {
    return "variant repeated copies a sixteenth of the size 16 times, in words of 16 bytes; take a multiple of 256 B";
  }
  return "";
}

std::unique_ptr<Operation> make_repeated_copies(const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<RepeatedCopies>(context, spec);
}

}  // namespace linkgauge
