// What a rank does with its own device alone: copies between host memory and it, copies inside it, and the floor of a
// launch; and which cases of these, of the device latencies (operation/device_latency.cpp) and of gemm can be.
#include "operation/device_patterns.h"

#include <string>
#include <vector>

#include "base/patterns.h"
#include "device/kernel_tuning.h"
#include "kernels/kernels.h"
#include "operation/make_operation.h"
#include "operation/managed_memory.h"
#include "transport/copy_leg.h"
#include "transport/device_pattern.h"

namespace linkgauge {
namespace {

enum class Direction { kWithin, kIntoDevice, kOutOfDevice };

// One way of a copy: a buffer to another of this rank, by the copy engine or by a kernel.
class CopyWay {
 public:
  void by_copy_engine(Buffer source, Buffer target) {
    source_ = std::move(source);
    target_ = std::move(target);
  }
  // Instead of the copy engine, once the buffers are given and managed: the kernel that is fastest on them as they are.
  void by_kernel(const RankContext& context, int blocks) {
    DeviceRuntime& runtime = *context.runtime;
    const int device = context.device();
    const CopyPath path{device, place(target_, target_pages_), place(source_, source_pages_)};
    const CopyVariant variant = fastest_copy(runtime, path, target_.data(), source_.data(), source_.size(), blocks);
    tell_choice(context, variant);
    kernel_ = runtime.kernel(device, variant.kernel);
    shape_ = variant.shape;
  }
  // After the buffers are given: what becomes of those whose pages may move.
  void manage(DeviceRuntime& runtime, int device, const Mechanism& by, Direction direction) {
    using Way = ManagedPages::Way;
    source_pages_.take(runtime, device, source_, by,
                       direction == Direction::kIntoDevice ? Way::kToDevice : Way::kStays);
    target_pages_.take(runtime, device, target_, by, direction == Direction::kOutOfDevice ? Way::kToHost : Way::kStays);
  }
  void put_back(StreamHandle stream) {
    source_pages_.put_back(stream);
    target_pages_.put_back(stream);
  }
  void post(DeviceRuntime& runtime, StreamHandle stream) {
    source_pages_.before(stream);
    copy(runtime, stream);
    target_pages_.after(stream);
  }
  void arrive() { target_pages_.arrive(); }
  bool moves_pages() const { return source_pages_.move() || target_pages_.move(); }
  Piece piece(int stream_rank) const { return {0, source_.size(), stream_rank, 0, false}; }
  const Buffer& source() const { return source_; }
  const Buffer& target() const { return target_; }
  void free() noexcept {
    source_pages_ = {};
    target_pages_ = {};
    source_ = Buffer();
    target_ = Buffer();
  }

 private:
  // What a kernel is chosen for: managed memory is the host's where its pages stay there.
  static int place(const Buffer& buffer, const ManagedPages& pages) {
    if (pages.move()) return kMovingPages;
    return buffer.kind() == MemoryKind::kManaged ? -1 : buffer.copy_device();
  }
  void copy(DeviceRuntime& runtime, StreamHandle stream) {
    if (kernel_ == nullptr) {
      runtime.copy_async(target_.data(), target_.copy_device(), source_.data(), source_.copy_device(), source_.size(),
                         stream);
      return;
    }
    runtime.launch_with(kernel_, shape_, stream, target_.data(), source_.data(), std::uint64_t{source_.size()});
  }

  Buffer source_;
  Buffer target_;
  ManagedPages source_pages_;
  ManagedPages target_pages_;
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
};

constexpr char kBothWays[] = "both_ways";

bool is_contended(Pattern pattern) {
  return pattern == Pattern::kHostToDeviceContended || pattern == Pattern::kDeviceToHostContended;
}

// Both copies of host_device_bidirectional by one kernel, as fastest_both_ways() says.
class TwoCopies {
 public:
  void choose(const RankContext& context, const CopyWay& there, const CopyWay& back, int blocks) {
    DeviceRuntime& runtime = *context.runtime;
    const int device = context.device();
    ways_ = {there.target().data(), there.source().data(), back.target().data(), back.source().data()};
    bytes_ = there.source().size();
    const CopyVariant variant = fastest_both_ways(runtime, device, ways_, bytes_, blocks);
    tell_choice(context, variant);
    kernel_ = runtime.kernel(device, variant.kernel);
    shape_ = variant.shape;
  }
  bool chosen() const { return kernel_ != nullptr; }
  void post(DeviceRuntime& runtime, StreamHandle stream) {
    runtime.launch_with(kernel_, shape_, stream, ways_.target, ways_.source, ways_.target_back, ways_.source_back,
                        bytes_);
  }

 private:
  BothWays ways_{};
  std::uint64_t bytes_ = 0;
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
};

// host_to_device, device_to_host, both at once (by a GPU's kernel, or on two streams), local_copy and stream_copy.
//
// Of host_to_device_contended and device_to_host_contended only the first rank's first way is timed. All others move
// twice as much, as nvbandwidth's do (testcase.cpp, allHostHelper), so that none is over before it.
class LocalCopies final : public DevicePattern {
 public:
  using DevicePattern::DevicePattern;

  void fill(std::uint64_t seed) override {
    for (std::size_t way = 0; way < ways_; ++way) {
      const Piece piece = copies_[way].piece(stream_rank(way));
      data().poison(copies_[way].target(), piece, seed);
      data().fill(copies_[way].source(), piece, false, seed);
    }
  }
  void put_back() override {
    for (std::size_t way = 0; way < ways_; ++way) copies_[way].put_back(stream());
  }
  void post() override {
    if (at_once_.chosen()) return at_once_.post(runtime(), stream());
    copies_[0].post(runtime(), stream());
    if (second_.handle() != nullptr) copies_[1].post(runtime(), second_.handle());
  }
  void complete() override {
    DevicePattern::complete();
    if (second_.handle() != nullptr) second_.synchronize();
    for (std::size_t way = 0; way < ways_; ++way) copies_[way].arrive();
  }
  VerifyResult verify(std::uint64_t seed) override {
    VerifyResult result;
    for (std::size_t way = 0; way < ways_; ++way) {
      data().check(copies_[way].target(), copies_[way].piece(stream_rank(way)), seed, result);
    }
    return result;
  }
  int lane() const override { return beside() && rank() > 0 ? -1 : DevicePattern::lane(); }
  std::vector<DeviceQueue> queues() const override {
    std::vector<DeviceQueue> result = {{stream(), device(), !beside() || rank() == 0}};
    if (second_.handle() != nullptr) result.push_back({second_.handle(), device(), !beside()});
    return result;
  }

 private:
  bool beside() const { return is_contended(traffic().pattern); }
  Direction direction(bool way_back) const {
    if (!traits_of(traffic().pattern).crosses_host_link) return Direction::kWithin;
    const bool out =
        traffic().pattern == Pattern::kDeviceToHost || traffic().pattern == Pattern::kDeviceToHostContended;
    return out != way_back ? Direction::kOutOfDevice : Direction::kIntoDevice;
  }
  int stream_rank(std::size_t way) const { return 2 * rank() + static_cast<int>(way); }

  void allocate() override {
    const bool by_kernel = mechanism().transport == "kernel";
    const bool both =
        traffic().pattern == Pattern::kHostDeviceBidirectional || (beside() && mechanism().variant == kBothWays);
    const auto add = [&](const End& from, const End& to) {
      CopyWay& way = copies_[ways_++];
      const bool twice = beside() && (rank() > 0 || ways_ == 2);
      const std::size_t bytes = traffic().bytes() * (twice ? 2 : 1);
      Buffer source = make_at(spec().places.source_device, from, bytes);
      Buffer target = make_at(spec().places.target_device, to, bytes);
      way.by_copy_engine(std::move(source), std::move(target));
      // Written before kernels are chosen by copying it, as BufferedOperation does.
      if (by_kernel && kernels_are_tried(runtime())) data().fill(way.source(), way.piece(stream_rank(0)), false, 0);
      way.manage(runtime(), device(), mechanism(), direction(ways_ == 2));
    };
    ways_ = 0;
    add(spec().places.source, spec().places.target);
    if (both) add(spec().places.target, spec().places.source);
    if (both && !(by_kernel && one_kernel_does())) second_ = Stream(runtime(), device());
  }

  // Devices share links to the host.
  void connect() override {
    if (mechanism().transport != "kernel") return;
    by_turns(context(), kernels_are_tried(runtime()), [&] {
      if (ways_ == 2 && one_kernel_does())
        return at_once_.choose(context(), copies_[0], copies_[1], mechanism().blocks);
      for (std::size_t way = 0; way < ways_; ++way) {
        copies_[way].put_back(stream());
        copies_[way].by_kernel(context(), mechanism().blocks);
      }
    });
  }
  // What is timed by itself, or follows its pages, needs a stream of its own; host devices have a core for each way.
  bool one_kernel_does() const {
    return !beside() && !copies_[0].moves_pages() && !copies_[1].moves_pages() && kernels_are_tried(runtime());
  }
  // Memory of another device, which this rank's process takes there itself, as a program on several devices does.
  Buffer make_at(int other, const End& end, std::size_t bytes) {
    if (other < 0 || other == device()) return Buffer(runtime(), device(), end.kind, bytes, end.options);
    Buffer buffer(runtime(), other, end.kind, bytes, end.options);
    const std::string reason = runtime().peer_access(device(), other);
    if (!reason.empty()) throw Unsupported(reason);
    return buffer;
  }
  void end_queues() noexcept override { second_ = Stream(); }
  void free_buffers() noexcept override {
    for (CopyWay& copy : copies_) copy.free();
    at_once_ = {};
  }

  CopyWay copies_[2];
  std::size_t ways_ = 0;
  Stream second_;
  TwoCopies at_once_;
};

// An empty kernel (transport kernel) or a copy of one byte (copy_engine), launched and completed: what every latency
// of that mechanism holds besides moving bytes.
class Floor final : public DevicePattern {
 public:
  using DevicePattern::DevicePattern;

  void fill(std::uint64_t seed) override {
    if (kernel_ != nullptr) return;
    data().poison(copy_.target(), copy_.piece(rank()), seed);
    data().fill(copy_.source(), copy_.piece(rank()), false, seed);
  }
  void post() override {
    if (kernel_ != nullptr) {
      runtime().launch(kernel_, {1, 1, 0}, nullptr, stream());
    } else {
      copy_.post(runtime(), stream());
    }
  }
  VerifyResult verify(std::uint64_t seed) override {
    VerifyResult result;  // an empty kernel moves nothing that could be wrong
    if (kernel_ == nullptr) data().check(copy_.target(), copy_.piece(rank()), seed, result);
    return result;
  }

 private:
  void allocate() override {
    if (mechanism().transport == "kernel") {
      kernel_ = runtime().kernel(device(), kKernelEmpty);
      return;
    }
    const auto byte = [&] { return Buffer(runtime(), device(), MemoryKind::kDevice, 1); };
    copy_.by_copy_engine(byte(), byte());
  }
  void free_buffers() noexcept override { copy_.free(); }

  KernelHandle kernel_ = nullptr;
  CopyWay copy_;
};

std::string why_not_beside(const RankContext& context, const CaseSpec& spec) {
  const std::string pattern(to_string(spec.traffic.pattern));
  if (!spec.mechanism.variant.empty() && spec.mechanism.variant != kBothWays) {
    return pattern + " has no variant '" + spec.mechanism.variant + "'; its variant is both_ways";
  }
  if (spec.timing.clock != ClockKind::kEvent) {
    return pattern + " is timed by events, since what moves beside it ends later; ask for clock event";
  }
  if (context.size() == 1 && spec.mechanism.variant.empty()) {
    return pattern + " of one device has nothing beside it; ask for variant both_ways, or more devices";
  }
  return "";
}

bool is_host_kind(MemoryKind kind) { return kind == MemoryKind::kPinned || kind == MemoryKind::kPageable; }

}  // namespace

std::string why_not_device_pattern(const RankContext& context, const CaseSpec& spec) {
  const Places& at = spec.places;
  const std::string pattern(to_string(spec.traffic.pattern));
  if (spec.mechanism.transport != "copy_engine" && spec.mechanism.transport != "kernel") {
    return pattern + " is of one device alone; its transports are copy_engine and kernel";
  }
  if (spec.traffic.pattern == Pattern::kGemm) return why_not_gemm(spec);
  if (spec.traffic.pattern == Pattern::kFlagPingpong) return why_not_flag_pingpong(context, spec);
  if (spec.traffic.pattern == Pattern::kEmptyOp) return "";
  if (spec.traffic.pattern == Pattern::kHostStream) return why_not_host_stream(spec);
  if (spec.traffic.size_bytes <= 0) return "a size of 0 moves nothing; 1 byte is the least";
  if (spec.mechanism.transport == "kernel") {
    if (std::string reason = why_not_reached(context, spec.places); !reason.empty()) return reason;
  }
  if (spec.traffic.pattern == Pattern::kPointerChase) {
    if (at.source.kind == MemoryKind::kPageable && context.runtime->pageable_migrates(context.device())) {
      return "pages of pageable memory move to the device that walks through them; use pinned memory";
    }
    return why_not_pointer_chase(context, spec);
  }
  if (std::string reason = why_not_managed(*context.runtime, context.device(), spec); !reason.empty()) return reason;
  if (spec.traffic.pattern == Pattern::kHostDeviceBidirectional && !spec.mechanism.variant.empty()) {
    if (std::string reason = why_not_repeated(spec); !reason.empty()) return reason;
  }
  switch (spec.traffic.pattern) {
    case Pattern::kHostToDeviceContended:
    case Pattern::kDeviceToHostContended: {
      const bool into = spec.traffic.pattern == Pattern::kHostToDeviceContended;
      const MemoryKind host_end = into ? at.source.kind : at.target.kind;
      const MemoryKind device_end = into ? at.target.kind : at.source.kind;
      if (!is_host_kind(host_end) || device_end != MemoryKind::kDevice) {
        return pattern + " is between pinned or pageable memory and device memory; the case goes from " +
               std::string(to_string(at.source.kind)) + " to " + std::string(to_string(at.target.kind));
      }
      return why_not_beside(context, spec);
    }
    case Pattern::kHostToDevice:
    case Pattern::kHostDeviceBidirectional:
    case Pattern::kDeviceToHost: {
      const bool out = spec.traffic.pattern == Pattern::kDeviceToHost;
      const MemoryKind host_end = out ? at.target.kind : at.source.kind;
      const MemoryKind device_end = out ? at.source.kind : at.target.kind;
      if (host_end == MemoryKind::kManaged || (is_host_kind(host_end) && !is_host_kind(device_end))) break;
      return pattern +
             (out ? " goes from device memory to pinned, pageable or managed target memory"
                  : " goes from pinned, pageable or managed source memory to device memory") +
             "; the case has " + std::string(to_string(at.source.kind)) + " and " +
             std::string(to_string(at.target.kind));
    }
    case Pattern::kStreamCopy:
      if (spec.mechanism.transport != "kernel") return "stream_copy is a kernel's; its transport is kernel";
      break;
    default:
      break;
  }
  return "";
}

std::unique_ptr<Operation> make_device_pattern(Transport&, const RankContext& context, const CaseSpec& spec) {
  if (spec.traffic.pattern == Pattern::kPointerChase) return make_pointer_chase(context, spec);
  if (spec.traffic.pattern == Pattern::kFlagPingpong) return make_flag_pingpong(context, spec);
  if (spec.traffic.pattern == Pattern::kGemm) return make_gemm(context, spec);
  if (spec.traffic.pattern == Pattern::kHostStream) return make_host_stream(context, spec);
  if (spec.traffic.pattern == Pattern::kEmptyOp) return std::make_unique<Floor>(context, spec);
  if (is_repeated(spec)) return make_repeated_copies(context, spec);
  return std::make_unique<LocalCopies>(context, spec);
}

}  // namespace linkgauge
