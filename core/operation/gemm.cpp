// A matrix product on each rank's own device: what computes, beside which communication is measured.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "operation/device_patterns.h"
#include "transport/device_pattern.h"

namespace linkgauge {
namespace {

constexpr std::size_t kSideUnit = 64;
constexpr unsigned kBlocksPerMultiprocessor = 4;  // as many as its registers hold

std::size_t side_of(const Traffic& traffic) {
  const double most = std::sqrt(static_cast<double>(traffic.size_bytes) / sizeof(float));
  return static_cast<std::size_t>(most) / kSideUnit * kSideUnit;
}

using Square = std::vector<float>;

class Gemm final : public DevicePattern {
 public:
  Gemm(const RankContext& context, const CaseSpec& spec) : DevicePattern(context, spec), side_(side_of(spec.traffic)) {}

  void fill(std::uint64_t seed) override {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(rank()));
    for (Square* matrix : {&left_, &right_}) {
      // 0 to 7: sums of 2^18 products of such are exact in float32.
      for (float& value : *matrix) value = static_cast<float>(random() >> 61U);
    }
    write(left_there_, left_);
    write(right_there_, right_);
    write(product_there_, Square(side_ * side_, std::nanf("")));
  }
  void post() override {
    runtime().launch_with(kernel_, shape_, stream(), product_there_.data(), left_there_.data(), right_there_.data(),
                          std::uint64_t{side_});
  }
  // Freivalds 1977: product x = left (right x) for a random x. All is exact in whole numbers below 2^53; a wrong
  // element alone in its row is always found, several there but once in 2^16.
  VerifyResult verify(std::uint64_t seed) override {
    Square product(side_ * side_);
    runtime().copy_now(product.data(), -1, product_there_.data(), device(), product_there_.size());
    std::mt19937_64 random(~seed);
    std::vector<double> x(side_);
    for (double& value : x) value = static_cast<double>(1 + (random() >> 48U));
    const std::vector<double> due = times(left_, times(right_, x));
    const std::vector<double> found = times(product, x);
    VerifyResult result;
    for (std::size_t row = 0; row < side_; ++row) {
      if (found[row] == due[row]) continue;  // not so where a NaN is left
      result.add(sizeof(float), row * side_ * sizeof(float), static_cast<std::uint64_t>(due[row]),
                 std::isfinite(found[row]) ? static_cast<std::uint64_t>(found[row]) : 0,
                 "a row of the product, weighted and summed up");
    }
    return result;
  }

 private:
  std::vector<double> times(const Square& matrix, const std::vector<double>& vector) const {
    std::vector<double> result(side_);
    for (std::size_t row = 0; row < side_; ++row) {
      for (std::size_t column = 0; column < side_; ++column)
        result[row] += static_cast<double>(matrix[row * side_ + column]) * vector[column];
    }
    return result;
  }
  void write(const Buffer& buffer, const Square& matrix) {
    runtime().copy_now(buffer.data(), device(), matrix.data(), -1, buffer.size());
  }

  void allocate() override {
    const std::size_t bytes = side_ * side_ * sizeof(float);
    for (Buffer* buffer : {&left_there_, &right_there_, &product_there_})
      *buffer = Buffer(runtime(), device(), MemoryKind::kDevice, bytes);
    left_.resize(side_ * side_);
    right_.resize(side_ * side_);
    kernel_ = runtime().kernel(device(), kKernelGemm);
    const auto tiles = static_cast<unsigned>((side_ / kSideUnit) * (side_ / kSideUnit));
    const unsigned most = runtime().multiprocessors(device()) * kBlocksPerMultiprocessor;
    const int blocks = mechanism().blocks;
    shape_ = {std::min(tiles, blocks > 0 ? static_cast<unsigned>(blocks) : most), kGemmThreads, 0};
    if (runtime().kind() == RuntimeKind::kHost) return;  // a core, whatever the grid
    context().choose("grid", shape_.grid());
  }
  void free_buffers() noexcept override {
    left_there_ = Buffer();
    right_there_ = Buffer();
    product_there_ = Buffer();
  }

  std::size_t side_;
  Square left_;
  Square right_;
  Buffer left_there_;
  Buffer right_there_;
  Buffer product_there_;
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
};

}  // namespace

std::string why_not_gemm(const CaseSpec& spec) {
  const Mechanism& by = spec.mechanism;
  if (by.transport != "kernel") return "gemm is a kernel's; its transport is kernel";
  if (!by.variant.empty()) return "gemm has no variant '" + by.variant + "'; leave --variant out";
  if (spec.places.source.kind != MemoryKind::kDevice || spec.places.target.kind != MemoryKind::kDevice)
    return "gemm's matrices are in device memory; leave the memory kinds out";
  if (side_of(spec.traffic) == 0) {
    return "a matrix of gemm takes " + std::to_string(kSideUnit * kSideUnit * sizeof(float)) + " bytes or more";
  }
  return "";
}

std::unique_ptr<Operation> make_gemm(const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<Gemm>(context, spec);
}

}  // namespace linkgauge
