#include "transport/data_check.h"

#include <algorithm>
#include <array>
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

LaunchShape strided_shape(unsigned multiprocessors, std::uint64_t bytes, unsigned threads,
                          unsigned blocks_a_multiprocessor) {
  const std::uint64_t useful = bytes / (16ULL * threads) + 1;
  const std::uint64_t most = std::uint64_t{std::max(1U, multiprocessors)} * blocks_a_multiprocessor;
  return {static_cast<unsigned>(std::min(useful, most)), threads, 0};
}

DataCheck::DataCheck(DeviceRuntime& runtime, int device, const Traffic& traffic, int ranks)
    : runtime_(&runtime),
      device_(device),
      datatype_(static_cast<std::uint32_t>(traffic.datatype)),
      op_(static_cast<std::uint32_t>(traffic.op)),
      ranks_(ranks),
      multiprocessors_(runtime.multiprocessors(device)),
      kernels_(runtime.why_no_kernels().empty()),
      found_(runtime, device, MemoryKind::kDevice, kChecksAtOnce * sizeof(CheckResult)),
      stream_(runtime, device) {}

// On the device, or where `data` and what follows are the host's, here.
template <typename... More>
void DataCheck::run(const char* kernel, const Buffer& buffer, const void* data, const Piece& piece, std::uint32_t op,
                    std::uint64_t seed, std::int32_t rank, More... more) {
  std::uint64_t bytes = piece.bytes;
  std::uint64_t offset = piece.stream_offset;
  void* arguments[] = {&data, &bytes, &datatype_, &op, &seed, &rank, &ranks_, &offset, &more...};
  if (by_kernel(buffer)) {
    runtime_->launch(runtime_->kernel(device_, kernel), strided_shape(multiprocessors_, bytes), arguments,
                     stream_.handle());
  } else {
    host_kernel(kernel).run(arguments, {});
  }
}

void DataCheck::run_fill(const Buffer& buffer, const Piece& piece, std::uint32_t op, std::uint64_t seed,
                         std::int32_t rank) {
  if (by_kernel(buffer)) return run(kKernelFill, buffer, buffer.at(piece.offset), piece, op, seed, rank);
  HostView view(*runtime_, buffer, piece);
  run(kKernelFill, buffer, view.data(), piece, op, seed, rank);
  view.store();
}

void DataCheck::fill(const Buffer& buffer, const Piece& piece, bool typed, std::uint64_t seed) {
  run_fill(buffer, piece, op_of(typed), seed, piece.rank);
  stream_.synchronize();
}

void DataCheck::poison(const Buffer& buffer, std::span<const Piece> pieces, std::uint64_t seed) {
  for (const Piece& piece : pieces) run_fill(buffer, piece, op_of(piece.reduced), seed, -1 - piece.rank);
  stream_.synchronize();
}

void DataCheck::run_check(const Buffer& buffer, const void* data, const Piece& piece, std::uint64_t seed,
                          CheckResult* found) {
  run(kKernelCheck, buffer, data, piece, op_of(piece.reduced), seed, piece.rank, found);
}

void DataCheck::check(const Buffer& buffer, std::span<const Piece> pieces, std::uint64_t seed, VerifyResult& result) {
  for (; !pieces.empty(); pieces = pieces.subspan(std::min(kChecksAtOnce, pieces.size()))) {
    const std::span<const Piece> now = pieces.first(std::min(kChecksAtOnce, pieces.size()));
    std::array<CheckResult, kChecksAtOnce> found;
    found.fill({0, ~std::uint64_t{0}, 0, 0});
    if (by_kernel(buffer)) {
      auto* const kept = static_cast<CheckResult*>(found_.data());
      const std::size_t bytes = now.size() * sizeof(CheckResult);
      runtime_->copy_now(kept, device_, found.data(), -1, bytes);
      for (std::size_t i = 0; i < now.size(); ++i) run_check(buffer, buffer.at(now[i].offset), now[i], seed, kept + i);
      stream_.synchronize();
      runtime_->copy_now(found.data(), -1, kept, device_, bytes);
    } else {
      for (std::size_t i = 0; i < now.size(); ++i) {
        HostView view(*runtime_, buffer, now[i]);
        view.load();
        run_check(buffer, view.data(), now[i], seed, &found[i]);
      }
    }
    for (std::size_t i = 0; i < now.size(); ++i) add(buffer, now[i], found[i], result);
  }
}

void DataCheck::add(const Buffer& buffer, const Piece& piece, const CheckResult& found, VerifyResult& result) {
  if (found.bad_bytes == 0) return;
  result.add(found.bad_bytes, piece.offset + found.first_bad_offset, found.expected, found.found,
             std::string(to_string(buffer.kind())) + " target buffer, " +
                 (piece.reduced ? "the reduction" : "data of rank " + std::to_string(piece.rank)));
}

}  // namespace linkgauge
