// Latencies that a running kernel sees: a chase of pointers through memory, its own device's, pinned, or another
// device's; and flags that two running kernels pass to each other.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "kernels/kernels.h"
#include "operation/device_patterns.h"
#include "transport/device_pattern.h"
#include "transport/peer_memory.h"

namespace linkgauge {
namespace {

// A line further than any prefetch of the neighboring line reaches.
constexpr std::size_t kChaseStrideBytes = 128;

constexpr char kInTurn[] = "in_turn";
constexpr char kRelaxed[] = "relaxed";
// What nvbandwidth 0.8 times as one figure (common.h, latencyMemAccessCnt), shared out among the multiprocessors.
constexpr std::int64_t kLoadsInTurn = 1'000'000;

// One operation walks once around a ring of pointers, one for each kChaseStrideBytes of the size, in random order. With
// two ranks the first one's device walks through memory of the second's, who only lends it.
//
// `in_turn` is nvbandwidth's way: the ring goes by address, and each multiprocessor in turn walks its share of
// kLoadsInTurn from the first place on, so that the mean is over all places from which a device can ask.
class Chase final : public DevicePattern {
 public:
  Chase(const RankContext& context, const CaseSpec& spec)
      : DevicePattern(context, spec),
        in_turn_(spec.mechanism.variant == kInTurn),
        walkers_(in_turn_ ? std::max(runtime().describe(device()).multiprocessors, 1) : 1),
        loads_(in_turn_ ? kLoadsInTurn / walkers_ : places() - 1) {}

  void fill(std::uint64_t seed) override {
    if (!walks()) return;
    std::vector<std::size_t> order(static_cast<std::size_t>(places()));
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937_64 random(seed);
    if (!in_turn_) std::shuffle(order.begin() + 1, order.end(), random);
    std::vector<std::byte> image(walked_.bytes);
    for (std::size_t i = 0; i < order.size(); ++i) {
      void* next = place(order[(i + 1) % order.size()]);
      std::copy_n(reinterpret_cast<const std::byte*>(&next), sizeof next, &image[order[i] * kChaseStrideBytes]);
    }
    runtime().copy_now(walked_.data, walked_.copy_device, image.data(), -1, image.size());
    // One load less than a round: the end is a place that only a whole walk reaches.
    due_ = place(order[static_cast<std::size_t>(loads_) % order.size()]);
    const std::vector<void*> poison(static_cast<std::size_t>(walkers_));
    runtime().copy_now(ends_.data(), device(), poison.data(), -1, ends_.size());
  }
  void post() override {
    if (!walks()) return;
    const auto walkers = static_cast<unsigned>(walkers_);
    for (unsigned walker = 0; walker < walkers; ++walker) {  // which is a parameter of chase_in_turn only
      runtime().launch_with(kernel_, {walkers, 1, 0}, stream(), walked_.data, static_cast<std::uint64_t>(loads_),
                            ends_.data(), walker);
    }
  }
  VerifyResult verify(std::uint64_t) override {
    VerifyResult result;
    if (!walks()) return result;
    std::vector<void*> found(static_cast<std::size_t>(walkers_));
    runtime().copy_now(found.data(), -1, ends_.data(), device(), ends_.size());
    for (void* end : found) {
      if (end == due_) continue;
      result.add(sizeof end, 0, reinterpret_cast<std::uintptr_t>(due_), reinterpret_cast<std::uintptr_t>(end),
                 "the pointer at which the chase ends");
    }
    return result;
  }
  int lane() const override { return walks() ? 0 : -1; }
  std::int64_t steps() const override { return walkers_ * loads_; }
  int commands_per_post() const override { return walkers_; }
  std::vector<DeviceQueue> queues() const override {
    return walks() ? DevicePattern::queues() : std::vector<DeviceQueue>{};
  }

 private:
  bool walks() const { return rank() == 0; }
  bool lends() const { return rank() == ranks() - 1; }
  std::int64_t places() const { return traffic().size_bytes / static_cast<std::int64_t>(kChaseStrideBytes); }
  void* place(std::size_t number) const { return static_cast<std::byte*>(walked_.data) + number * kChaseStrideBytes; }

  void allocate() override {
    if (lends()) ring_ = make(spec().places.source);
    if (!walks()) return;
    ends_ = Buffer(runtime(), device(), MemoryKind::kDevice, static_cast<std::size_t>(walkers_) * sizeof(void*));
    kernel_ = runtime().kernel(device(), in_turn_ ? kKernelChaseInTurn : kKernelChase);
  }
  void connect() override {
    if (ranks() == 1) {
      walked_ = {ring_.data(), ring_.copy_device(), nullptr, ring_.size()};
    } else {
      const int lender = context().device_of_rank.back();
      std::string reason;
      if (walks() && lender != device()) reason = runtime().peer_access(device(), lender);
      agree_or_throw(*context().group, reason);
      const Flows flows = {{ranks() - 1, 0, lends() ? &ring_ : nullptr, nullptr}};
      walked_ = open_peers(context(), flows, ExposedEnd::kSource)[0];
    }
  }
  void disconnect() noexcept override {
    walked_ = {};
    if (ranks() > 1) group().part({});
  }
  void free_buffers() noexcept override {
    ring_ = Buffer();
    ends_ = Buffer();
  }

  bool in_turn_;
  int walkers_;         // multiprocessors that walk, one after the other
  std::int64_t loads_;  // of each
  Buffer ring_;
  Buffer ends_;  // where each walk ended
  PeerBuffer walked_;
  void* due_ = nullptr;
  KernelHandle kernel_ = nullptr;
};

// Looks at a flag before a kernel gives up: some ten seconds on a GPU, whose look takes about half a microsecond; on a
// host device, which may wait for a core, some seconds of its own time.
constexpr std::uint64_t kGpuSpinLimit = std::uint64_t{1} << 24;
constexpr std::uint64_t kHostSpinLimit = std::uint64_t{1} << 32;

// Round trips of one launch on a host device, which may have to wait for a core in every one of them.
constexpr std::uint64_t kHostRounds = 20;

// The flags only ever grow, so that none has to be reset between launches. A rank alone plays both sides by two kernels
// of its device.
class FlagPingpong final : public DevicePattern {
 public:
  using DevicePattern::DevicePattern;

  void fill(std::uint64_t) override {}
  void post() override {
    if (ranks() == 1) launch(sides_[1], false, second_.handle());
    launch(sides_[0], rank() == 0, stream());
    rounds_ += static_cast<std::uint64_t>(steps());
  }
  void complete() override {
    DevicePattern::complete();
    if (ranks() == 1) second_.synchronize();
    const std::uint64_t given_up = gave_up_word(0) != 0 ? gave_up_word(0) : gave_up_word(1);
    if (given_up == 0) return;
    throw Error("flag_pingpong gave up waiting in round trip " + std::to_string(given_up) + " of " +
                std::to_string(rounds_) + ": the other kernel's flag did not arrive");
  }
  VerifyResult verify(std::uint64_t) override {
    VerifyResult result;
    for (const Side& side : sides_) {
      if (side.mine == nullptr) continue;
      std::uint64_t found = 0;
      runtime().copy_now(&found, -1, side.mine, device(), sizeof found);
      if (found != rounds_) result.add(sizeof found, 0, rounds_, found, "the flag of the last round trip");
    }
    return result;
  }
  int lane() const override { return rank() == 0 ? 0 : -1; }
  std::int64_t steps() const override {
    return static_cast<std::int64_t>(runtime().kind() == RuntimeKind::kHost ? kHostRounds : kRoundsOfLaunch);
  }
  std::vector<DeviceQueue> queues() const override {
    std::vector<DeviceQueue> result = DevicePattern::queues();
    if (ranks() == 1) result.push_back({second_.handle(), device()});
    return result;
  }

 private:
  struct Side {
    void* mine = nullptr;
    void* theirs = nullptr;
    std::uint64_t* gave_up = nullptr;  // in pinned memory
  };
  static constexpr std::size_t kFlagStrideBytes = 256;  // no flag shares a line with another

  void allocate() override {
    const std::vector<std::byte> zeros(2 * kFlagStrideBytes);
    flags_ = Buffer(runtime(), device(), MemoryKind::kDevice, zeros.size(), spec().places.source.options);
    gave_up_ = Buffer(runtime(), device(), MemoryKind::kPinned, zeros.size());
    runtime().copy_now(flags_.data(), flags_.copy_device(), zeros.data(), -1, zeros.size());
    runtime().copy_now(gave_up_.data(), -1, zeros.data(), -1, zeros.size());
    kernel_ = runtime().kernel(device(), kKernelFlagPingpong);
    if (ranks() == 1) second_ = Stream(runtime(), device());
  }
  void connect() override {
    if (ranks() == 1) {
      sides_[0] = {flags_.at(0), flags_.at(kFlagStrideBytes), gave_up_at(0)};
      sides_[1] = {flags_.at(kFlagStrideBytes), flags_.at(0), gave_up_at(1)};
      return;
    }
    const int peer_device = context().device_of_rank[static_cast<std::size_t>(1 - rank())];
    std::string reason;
    if (peer_device != device()) reason = runtime().peer_access(device(), peer_device);
    agree_or_throw(*context().group, reason);
    const Flows flows = {{0, 1, nullptr, &flags_}, {1, 0, nullptr, &flags_}};
    peers_ = open_peers(context(), flows, ExposedEnd::kTarget);
    sides_[0] = {flags_.data(), peers_[static_cast<std::size_t>(rank())].data, gave_up_at(0)};
  }
  void disconnect() noexcept override {
    peers_.clear();
    for (Side& side : sides_) side = {};
    if (ranks() > 1) group().part({});
  }
  void end_queues() noexcept override { second_ = Stream(); }
  void free_buffers() noexcept override {
    flags_ = Buffer();
    gave_up_ = Buffer();
  }

  std::uint64_t* gave_up_at(std::size_t side) const {
    return reinterpret_cast<std::uint64_t*>(gave_up_.at(side * kFlagStrideBytes));
  }
  std::uint64_t gave_up_word(std::size_t side) const {
    return *static_cast<const volatile std::uint64_t*>(gave_up_at(side));
  }

  void launch(const Side& side, bool starts, StreamHandle stream) {
    const bool relaxed = mechanism().variant == kRelaxed;
    runtime().launch_with(kernel_, {1, 1, 0}, stream, side.mine, side.theirs, rounds_ + 1,
                          static_cast<std::uint64_t>(steps()), std::int32_t{starts},
                          runtime().kind() == RuntimeKind::kHost ? kHostSpinLimit : kGpuSpinLimit, side.gave_up,
                          std::int32_t{relaxed});
  }

  Buffer flags_;
  Buffer gave_up_;
  Stream second_;
  std::vector<PeerBuffer> peers_;
  Side sides_[2];
  KernelHandle kernel_ = nullptr;
  std::uint64_t rounds_ = 0;
};

// CUDA's Multi-Process Service runs kernels of several processes side by side; its daemon listens in this folder.
bool mps_runs() {
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(folder != nullptr ? folder : "/tmp/nvidia-mps") / "control",
                                 ignored);
}

}  // namespace

std::string why_not_pointer_chase(const RankContext& context, const CaseSpec& spec) {
  if (spec.mechanism.transport != "kernel") return "chase is a kernel's; its transport is kernel";
  if (!spec.mechanism.variant.empty() && spec.mechanism.variant != kInTurn) {
    return "chase has no variant '" + spec.mechanism.variant + "'; its variant is in_turn";
  }
  if (spec.traffic.size_bytes < static_cast<std::int64_t>(2 * kChaseStrideBytes)) {
    return "a chase needs " + std::to_string(2 * kChaseStrideBytes) + " bytes or more, for two places";
  }
  if (context.size() > 2) return "chase is of one device, or of one through the memory of another";
  if (context.size() == 2 && spec.places.source.kind != MemoryKind::kDevice) {
    return "a chase from one device to another is through device memory; give one device alone for " +
           std::string(to_string(spec.places.source.kind)) + " memory";
  }
  return "";
}

std::string why_not_flag_pingpong(const RankContext& context, const CaseSpec& spec) {
  if (spec.mechanism.transport != "kernel") return "flag_pingpong is between kernels; its transport is kernel";
  if (!spec.mechanism.variant.empty() && spec.mechanism.variant != kRelaxed)
    return "flag_pingpong has no variant '" + spec.mechanism.variant + "'; its variant is relaxed";
  if (context.size() > 2) {
    return "flag_pingpong is between 2 ranks, the case has " + std::to_string(context.size());
  }
  if (spec.places.source.kind != MemoryKind::kDevice || spec.places.target.kind != MemoryKind::kDevice) {
    return "the flags of flag_pingpong are in device memory; leave the memory kinds out";
  }
  if (context.group->node_count() > 1) return "flag_pingpong reaches devices of one node only";
  const bool one_device = context.size() == 2 && context.device_of_rank[0] == context.device_of_rank[1];
  if (one_device && !context.group->one_process() && context.runtime->kind() == RuntimeKind::kCuda && !mps_runs()) {
    return "kernels of two processes on one device run in turns, not side by side; start MPS (nvidia-cuda-mps-control "
           "-d), or use --threads or two devices";
  }
  return "";
}

std::unique_ptr<Operation> make_pointer_chase(const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<Chase>(context, spec);
}

std::unique_ptr<Operation> make_flag_pingpong(const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<FlagPingpong>(context, spec);
}

}  // namespace linkgauge
