// What a rank does with its own device alone: copies between host memory and it, copies inside it, and the floor of a
// launch; and which cases of these and of the device latencies (pattern/device_latency.cpp) can be.
#include <string>
#include <vector>

#include "device/kernel_tuning.h"
#include "kernels/kernels.h"
#include "pattern/device_pattern.h"
#include "pattern/operations.h"

namespace linkgauge {
namespace {

// One way of a copy: a buffer to another of this rank, by the copy engine or by a kernel.
class CopyWay {
 public:
  void by_copy_engine(Buffer source, Buffer target) {
    source_ = std::move(source);
    target_ = std::move(target);
  }
  void by_kernel(DeviceRuntime& runtime, int device, Buffer source, Buffer target, int blocks) {
    by_copy_engine(std::move(source), std::move(target));
    const CopyPath path{device, target_.copy_device(), source_.copy_device()};
    const CopyVariant variant = fastest_copy(runtime, path, target_.data(), source_.data(), source_.size(), blocks);
    kernel_ = runtime.kernel(device, variant.kernel);
    shape_ = variant.shape;
  }
  void post(DeviceRuntime& runtime, StreamHandle stream) {
    if (kernel_ == nullptr) {
      runtime.copy_async(target_.data(), target_.copy_device(), source_.data(), source_.copy_device(), source_.size(),
                         stream);
      return;
    }
    void* target = target_.data();
    const void* source = source_.data();
    std::uint64_t bytes = source_.size();
    void* arguments[] = {&target, &source, &bytes};
    runtime.launch(kernel_, shape_, arguments, stream);
  }
  Piece piece(int stream_rank) const { return {0, source_.size(), stream_rank, 0, false}; }
  const Buffer& source() const { return source_; }
  const Buffer& target() const { return target_; }
  void free() noexcept {
    source_ = Buffer();
    target_ = Buffer();
  }

 private:
  Buffer source_;
  Buffer target_;
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
};

// host_to_device, device_to_host, both at once on two streams, local_copy and stream_copy.
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
  void post() override {
    copies_[0].post(runtime(), stream());
    if (ways_ == 2) copies_[1].post(runtime(), second_.handle());
  }
  void complete() override {
    DevicePattern::complete();
    if (ways_ == 2) second_.synchronize();
  }
  VerifyResult verify(std::uint64_t seed) override {
    VerifyResult result;
    for (std::size_t way = 0; way < ways_; ++way) {
      data().check(copies_[way].target(), copies_[way].piece(stream_rank(way)), seed, result);
    }
    return result;
  }
  std::vector<DeviceQueue> queues() const override {
    std::vector<DeviceQueue> result = DevicePattern::queues();
    if (ways_ == 2) result.push_back({second_.handle(), device()});
    return result;
  }

 private:
  int stream_rank(std::size_t way) const { return 2 * rank() + static_cast<int>(way); }

  void allocate() override {
    const bool by_kernel = spec().transport == "kernel";
    const auto add = [&](MemoryKind from, const AllocateOptions& from_options, MemoryKind to,
                         const AllocateOptions& to_options) {
      CopyWay& way = copies_[ways_++];
      if (by_kernel) {
        way.by_kernel(runtime(), device(), make(from, from_options), make(to, to_options), spec().blocks);
      } else {
        way.by_copy_engine(make(from, from_options), make(to, to_options));
      }
    };
    ways_ = 0;
    add(spec().source_memory, spec().source_options, spec().target_memory, spec().target_options);
    if (spec().pattern == Pattern::kHostDeviceBoth) {
      add(spec().target_memory, spec().target_options, spec().source_memory, spec().source_options);
      second_ = Stream(runtime(), device());
    }
  }
  void free_buffers() noexcept override {
    for (CopyWay& copy : copies_) copy.free();
    second_ = Stream();
  }

  CopyWay copies_[2];
  std::size_t ways_ = 0;
  Stream second_;
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
    if (spec().transport == "kernel") {
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

bool is_host_kind(MemoryKind kind) { return kind == MemoryKind::kPinned || kind == MemoryKind::kPageable; }

}  // namespace

bool is_device_pattern(Pattern pattern) { return pattern > Pattern::kScatter; }

std::string why_not_device_pattern(const RankContext& context, const CaseSpec& spec) {
  const std::string pattern(to_string(spec.pattern));
  if (spec.transport != "copy_engine" && spec.transport != "kernel") {
    return pattern + " is of one device alone; its transports are copy_engine and kernel";
  }
  if (spec.pattern == Pattern::kFlagPingpong) return why_not_flag_pingpong(context, spec);
  if (spec.pattern == Pattern::kFloor) return "";
  if (spec.size_bytes <= 0) return "a size of 0 moves nothing; 1 byte is the least";
  const bool pageable = spec.source_memory == MemoryKind::kPageable || spec.target_memory == MemoryKind::kPageable;
  if (pageable && spec.transport == "kernel" && context.runtime->name() != "host") {
    return "a GPU's kernel cannot reach pageable memory; use pinned or managed memory";
  }
  switch (spec.pattern) {
    case Pattern::kHostToDevice:
    case Pattern::kHostDeviceBoth:
      if (!is_host_kind(spec.source_memory) || is_host_kind(spec.target_memory)) {
        return pattern + " goes from pinned or pageable source memory to device memory; the case has " +
               std::string(to_string(spec.source_memory)) + " and " + std::string(to_string(spec.target_memory));
      }
      break;
    case Pattern::kDeviceToHost:
      if (is_host_kind(spec.source_memory) || !is_host_kind(spec.target_memory)) {
        return pattern + " goes from device memory to pinned or pageable target memory; the case has " +
               std::string(to_string(spec.source_memory)) + " and " + std::string(to_string(spec.target_memory));
      }
      break;
    case Pattern::kStreamCopy:
      if (spec.transport != "kernel") return "stream_copy is a kernel's; its transport is kernel";
      break;
    case Pattern::kChase:
      return why_not_chase(context, spec);
    default:
      break;
  }
  return "";
}

std::unique_ptr<Operation> make_device_pattern(Transport&, const RankContext& context, const CaseSpec& spec) {
  if (spec.pattern == Pattern::kChase) return make_chase(context, spec);
  if (spec.pattern == Pattern::kFlagPingpong) return make_flag_pingpong(context, spec);
  if (spec.pattern == Pattern::kFloor) return std::make_unique<Floor>(context, spec);
  return std::make_unique<LocalCopies>(context, spec);
}

}  // namespace linkgauge
