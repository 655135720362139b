// What a copy by SYCL takes beside memcpy of the same bytes between the same memory: host USM to device USM, through
// the runtime as cases use it (copy_async, synchronize), the two alternated. On a CPU both move the same memory.
//
//   ./sycl_copy FOLDER [BYTES [ROUNDS]]   FOLDER: of libDPCTLSyclInterface.so; prints one line of JSON, times in ns
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "device/device_runtime.h"
#include "measure/clock.h"

namespace linkgauge {
namespace {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Copy>
double timed(const Copy& copy) {
  const std::int64_t start_ns = now_ns();
  copy();
  return static_cast<double>(now_ns() - start_ns);
}

int run(const char* folder, std::size_t bytes, int rounds) {
  RuntimeRequest request;
  request.which = "sycl";
  request.library_folders = {folder};
  const auto runtime = open_runtime(request);
  const Buffer source(*runtime, 0, MemoryKind::kPinned, bytes);
  const Buffer target(*runtime, 0, MemoryKind::kDevice, bytes);
  std::memset(source.data(), 1, bytes);
  std::memset(target.data(), 2, bytes);
  Stream stream(*runtime, 0);
  const auto by_sycl = [&] {
    runtime->copy_async(target.data(), 0, source.data(), -1, bytes, stream.handle());
    stream.synchronize();
  };
  const auto by_memcpy = [&] { std::memcpy(target.data(), source.data(), bytes); };
  constexpr int kWarmup = 5;
  for (int i = 0; i < kWarmup; ++i) {
    by_sycl();
    by_memcpy();
  }
  std::vector<double> sycl;
  std::vector<double> plain;
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    // Who goes first finds the caches as the other left them: each in turn.
    if (round % 2 == 0) sycl.push_back(timed(by_sycl));
    plain.push_back(timed(by_memcpy));
    if (round % 2 != 0) sycl.push_back(timed(by_sycl));
    ratios.push_back(sycl.back() / plain.back());
  }
  std::printf("{\"bytes\": %zu, \"rounds\": %d, \"sycl_ns\": %.0f, \"memcpy_ns\": %.0f, \"ratio\": %.3f}\n", bytes,
              rounds, median_of(sycl), median_of(plain), median_of(ratios));
  return 0;
}

}  // namespace
}  // namespace linkgauge

int main(int count, char** words) {
  if (count < 2 || count > 4) {
    std::fprintf(stderr, "usage: sycl_copy FOLDER [BYTES [ROUNDS]]\n");
    return 2;
  }
  try {
    const std::size_t bytes = count > 2 ? std::strtoull(words[2], nullptr, 10) : std::size_t{64} << 20;
    const int rounds = count > 3 ? std::atoi(words[3]) : 101;
    if (bytes == 0 || rounds < 1) throw linkgauge::CallerError("BYTES and ROUNDS are positive numbers");
    return linkgauge::run(words[1], bytes, rounds);
  } catch (const linkgauge::Error& error) {
    std::fprintf(stderr, "sycl_copy: %s\n", error.what());
    return 1;
  }
}
