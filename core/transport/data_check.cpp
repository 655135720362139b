#include "transport/data_check.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "device/host_kernels.h"

namespace linkgauge {
namespace {

// Bytes of a buffer where the host reaches them: in place, or a copy of memory that it may not touch.
class HostView {
 public:
  HostView(DeviceRuntime& runtime, const Buffer& buffer, const Piece& piece)
      : runtime_(runtime), place_(buffer.at(piece.offset)), device_(buffer.copy_device()) {
    if (device_ >= 0) copy_.resize(piece.bytes);
  }
  void* data() { return device_ >= 0 ? copy_.data() : place_; }
  void load() {
    if (device_ >= 0) runtime_.copy_now(copy_.data(), -1, place_, device_, copy_.size());
  }
  void store() {
    if (device_ >= 0) runtime_.copy_now(place_, device_, copy_.data(), -1, copy_.size());
  }

 private:
  DeviceRuntime& runtime_;
  std::byte* place_;
  int device_;
  std::vector<std::byte> copy_;
};

}  // namespace

LaunchShape strided_shape(unsigned multiprocessors, std::uint64_t bytes) {
  constexpr unsigned kThreads = 256;
  constexpr unsigned kBlocksPerMultiprocessor = 8;
  const std::uint64_t useful = bytes / (16ULL * kThreads) + 1;
  const std::uint64_t most = static_cast<std::uint64_t>(std::max(1U, multiprocessors)) * kBlocksPerMultiprocessor;
  return {static_cast<unsigned>(std::min(useful, most)), kThreads, 0};
}

DataCheck::DataCheck(DeviceRuntime& runtime, int device, const Traffic& traffic, int ranks)
    : runtime_(&runtime),
      device_(device),
      datatype_(static_cast<std::uint32_t>(traffic.datatype)),
      op_(static_cast<std::uint32_t>(traffic.op)),
      ranks_(ranks),
      multiprocessors_(runtime.multiprocessors(device)),
      kernels_(runtime.why_no_kernels().empty()),
      found_(runtime, device, MemoryKind::kDevice, sizeof(CheckResult)),
      stream_(runtime, device) {}

void DataCheck::run_fill(const Buffer& buffer, const Piece& piece, std::uint32_t op, std::uint64_t seed,
                         std::int32_t rank) {
  void* target = buffer.at(piece.offset);
  std::uint64_t bytes = piece.bytes;
  std::uint64_t offset = piece.stream_offset;
  std::uint32_t datatype = datatype_;
  std::int32_t ranks = ranks_;
  void* arguments[] = {&target, &bytes, &datatype, &op, &seed, &rank, &ranks, &offset};
  if (!by_kernel(buffer)) {
    HostView view(*runtime_, buffer, piece);
    target = view.data();
    host_kernel(kKernelFill).run(arguments, {});
    view.store();
    return;
  }
  runtime_->launch(runtime_->kernel(device_, kKernelFill), strided_shape(multiprocessors_, bytes), arguments,
                   stream_.handle());
  stream_.synchronize();
}

void DataCheck::fill(const Buffer& buffer, const Piece& piece, bool typed, std::uint64_t seed) {
  run_fill(buffer, piece, op_of(typed), seed, piece.rank);
}

void DataCheck::poison(const Buffer& buffer, const Piece& piece, std::uint64_t seed) {
  run_fill(buffer, piece, op_of(piece.reduced), seed, -1 - piece.rank);
}

void DataCheck::check(const Buffer& buffer, const Piece& piece, std::uint64_t seed, VerifyResult& result) {
  const void* data = buffer.at(piece.offset);
  std::uint64_t bytes = piece.bytes;
  std::uint64_t offset = piece.stream_offset;
  std::uint32_t datatype = datatype_;
  std::uint32_t op = op_of(piece.reduced);
  std::int32_t rank = piece.rank;
  std::int32_t ranks = ranks_;
  CheckResult found{0, ~std::uint64_t{0}, 0, 0};
  if (by_kernel(buffer)) {
    auto* kept = static_cast<CheckResult*>(found_.data());
    runtime_->copy_now(kept, device_, &found, -1, sizeof found);
    void* arguments[] = {&data, &bytes, &datatype, &op, &seed, &rank, &ranks, &offset, &kept};
    runtime_->launch(runtime_->kernel(device_, kKernelCheck), strided_shape(multiprocessors_, bytes), arguments,
                     stream_.handle());
    stream_.synchronize();
    runtime_->copy_now(&found, -1, kept, device_, sizeof found);
  } else {
    HostView view(*runtime_, buffer, piece);
    view.load();
    data = view.data();
    CheckResult* kept = &found;
    void* arguments[] = {&data, &bytes, &datatype, &op, &seed, &rank, &ranks, &offset, &kept};
    host_kernel(kKernelCheck).run(arguments, {});
  }
  if (found.bad_bytes == 0) return;
  if (result.ok) {
    result.first_bad_offset = piece.offset + found.first_bad_offset;
    result.expected = found.expected;
    result.found = found.found;
    result.where = std::string(to_string(buffer.kind())) + " target buffer, " +
                   (piece.reduced ? "the reduction" : "data of rank " + std::to_string(piece.rank));
  }
  result.ok = false;
  result.bad_bytes += found.bad_bytes;
}

}  // namespace linkgauge
