#include "operation/application_copies.h"

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "device/kernel_tuning.h"

namespace linkgauge {
namespace {

constexpr auto kInto = static_cast<std::size_t>(CopyDirection::kIntoDevice);
constexpr auto kOut = static_cast<std::size_t>(CopyDirection::kOutOfDevice);
constexpr auto kWithinDevice = static_cast<std::size_t>(CopyDirection::kWithinDevice);
constexpr const char* kWays[kCopyDirections] = {"host_to_device", "device_to_host", "within_device"};

}  // namespace

ApplicationCopies::ApplicationCopies(const RankContext& context, const CaseSpec& spec, const Program& program)
    : context_(&context), program_(&program) {
  DeviceRuntime& runtime = *context.runtime;
  const auto make = [&](MemoryKind kind, std::size_t bytes) {
    return bytes == 0 ? Buffer() : Buffer(runtime, context.device(), kind, bytes);
  };
  // The hosts' ends: as messages' buffers, where these are the host's.
  const bool pageable = spec.places.source.kind == MemoryKind::kPageable;
  const MemoryKind host = pageable ? MemoryKind::kPageable : MemoryKind::kPinned;
  for (std::size_t way = 0; way < kCopyDirections; ++way) {
    const std::size_t bytes = program.copy_bytes[way];
    ends_[way].source = make(way == kInto ? host : MemoryKind::kDevice, bytes);
    ends_[way].target = make(way == kOut ? host : MemoryKind::kDevice, bytes);
  }
  if (spec.mechanism.copies == "kernel") choose_kernels(spec.mechanism.blocks);
}

// One a direction, for its largest copy.
void ApplicationCopies::choose_kernels(int blocks) {
  DeviceRuntime& runtime = *context_->runtime;
  const int device = context_->device();
  std::array<std::size_t, kCopyDirections> largest{};
  for (const ProgramStep& step : program_->steps) {
    const bool work = step.kind == ProgramKind::kCompute && step.queue >= 0;
    if (!work && step.kind != ProgramKind::kCopy) continue;
    std::size_t& of_way = largest[work ? kWithinDevice : static_cast<std::size_t>(step.which)];
    of_way = std::max(of_way, static_cast<std::size_t>(step.amount));
  }
  for (std::size_t way = 0; way < kCopyDirections; ++way) {
    Ends& ends = ends_[way];
    if (largest[way] == 0) continue;
    std::string reason = runtime.why_no_kernels();
    if (ends.source.kind() == MemoryKind::kPageable || ends.target.kind() == MemoryKind::kPageable) {
      if (reason.empty()) reason = runtime.why_not_pageable(device);
    }
    if (!reason.empty()) throw Unsupported(reason);
    const CopyPath path{device, ends.target.copy_device(), ends.source.copy_device()};
    const CopyVariant chosen =
        fastest_copy(runtime, path, ends.target.data(), ends.source.data(), largest[way], blocks);
    ends.kernel = runtime.kernel(device, chosen.kernel);
    ends.shape = chosen.shape;
  }
}

void ApplicationCopies::queue(std::size_t way, const ProgramStep& step, StreamHandle stream) const {
  const Ends& ends = ends_[way];
  const auto offset = static_cast<std::size_t>(step.offset);
  const auto bytes = static_cast<std::size_t>(step.amount);
  if (ends.kernel == nullptr) {
    return context_->runtime->copy_async(ends.target.at(offset), ends.target.copy_device(), ends.source.at(offset),
                                         ends.source.copy_device(), bytes, stream);
  }
  context_->runtime->launch_with(ends.kernel, ends.shape, stream, ends.target.at(offset), ends.source.at(offset),
                                 std::uint64_t{bytes});
}

void ApplicationCopies::fill(DataCheck& data, std::uint64_t seed) const {
  for (std::size_t way = 0; way < kCopyDirections; ++way) {
    const Piece whole = piece(way, 0, program_->copy_bytes[way]);
    data.poison(ends_[way].target, whole, seed);
    data.fill(ends_[way].source, whole, false, seed);
  }
}

void ApplicationCopies::check(DataCheck& data, std::uint64_t seed, VerifyResult& result) const {
  for (const ProgramCopied& one : program_->copied) {
    if (!result.ok) return;
    data.check(ends_[one.direction].target, piece(one.direction, one.offset, one.bytes), seed, result);
    if (!result.ok) result.where = "a copy " + std::string(kWays[one.direction]) + ": " + result.where;
  }
}

// Of a stream of bytes that no message carries.
Piece ApplicationCopies::piece(std::size_t way, std::size_t offset, std::size_t bytes) const {
  return {offset, bytes, context_->rank(), (static_cast<std::uint64_t>(way + 1) << 40) + offset, false};
}

}  // namespace linkgauge
