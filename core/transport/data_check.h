// Fills buffers with a case's data and with poison, and checks every byte: lg_fill and lg_check on the buffer's own
// device, or the same kernels on the host for host memory and, on a copy of it, for memory of a runtime without
// kernels.
#pragma once

#include <cstdint>
#include <span>

#include "device/device_runtime.h"
#include "kernels/kernels.h"
#include "traffic/layout.h"
#include "transport/operation.h"

namespace linkgauge {

class DataCheck {
 public:
  // `ranks`: over which reductions go. Loads the kernels; makes a stream on `device`.
  DataCheck(DeviceRuntime& runtime, int device, const Traffic& traffic, int ranks);

  // Synchronous, all of them.
  void fill(const Buffer& buffer, const Piece& piece, bool typed, std::uint64_t seed);
  // The complement of what must arrive. The device is waited for once for all pieces.
  void poison(const Buffer& buffer, std::span<const Piece> pieces, std::uint64_t seed);
  void poison(const Buffer& buffer, const Piece& piece, std::uint64_t seed) { poison(buffer, {&piece, 1}, seed); }
  // Adds what it finds to `result`; `where` names the buffer. Offsets are of the buffer. The device is waited for once
  // for each kChecksAtOnce pieces.
  void check(const Buffer& buffer, std::span<const Piece> pieces, std::uint64_t seed, VerifyResult& result);
  void check(const Buffer& buffer, const Piece& piece, std::uint64_t seed, VerifyResult& result) {
    check(buffer, {&piece, 1}, seed, result);
  }

 private:
  static constexpr std::size_t kChecksAtOnce = 64;
  template <typename... More>
  void run(const char* kernel, const Buffer& buffer, const void* data, const Piece& piece, std::uint32_t op,
           std::uint64_t seed, std::int32_t rank, More... more);
  void run_check(const Buffer& buffer, const void* data, const Piece& piece, std::uint64_t seed, CheckResult* found);
  static void add(const Buffer& buffer, const Piece& piece, const CheckResult& found, VerifyResult& result);
  // Queued where the device's kernels do it.
  void run_fill(const Buffer& buffer, const Piece& piece, std::uint32_t op, std::uint64_t seed, std::int32_t rank);
  bool by_kernel(const Buffer& buffer) const { return kernels_ && buffer.copy_device() >= 0; }
  std::uint32_t op_of(bool typed) const { return typed ? op_ : kRawBytes; }

  DeviceRuntime* runtime_;
  int device_;
  std::uint32_t datatype_;
  std::uint32_t op_;
  std::int32_t ranks_;
  unsigned multiprocessors_;
  bool kernels_;
  Buffer found_;   // kChecksAtOnce CheckResults
  Stream stream_;  // goes before what it touches
};

// Grid of a kernel that strides over `bytes` by 16 a thread: enough blocks to fill the device, no more than there is
// work for.
LaunchShape strided_shape(unsigned multiprocessors, std::uint64_t bytes, unsigned threads = 256,
                          unsigned blocks_a_multiprocessor = 8);

}  // namespace linkgauge
