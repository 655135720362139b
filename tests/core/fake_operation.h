// An operation that moves nothing: it spins for a set time, counts its calls, and says of its data what it is told to.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measure/clock.h"
#include "transport/operation.h"

namespace linkgauge {

class FakeOperation : public Operation {
 public:
  explicit FakeOperation(Group& group, std::int64_t spin_ns = 0) : group_(group), spin_ns_(spin_ns) {}

  void prepare() override {}
  void fill(std::uint64_t seed) override { seeds.push_back(seed); }
  void post() override {
    ++posts;
    ++under_way_;
    if (on_post) on_post(posts);
  }
  void complete() override {
    const std::int64_t until_ns = now_ns() + spin_ns_ * under_way_;
    under_way_ = 0;
    while (now_ns() < until_ns) {
    }
    ++completes;
  }
  VerifyResult verify(std::uint64_t seed) override {
    ++verifies;
    VerifyResult result;
    if (seed != seeds.back() || verifies == wrong_verify) {
      result.ok = false;
      result.bad_bytes = 3;
      result.where = "in the fake";
    }
    return result;
  }
  void release() noexcept override {}
  int lane() const override { return keeps_time ? 0 : -1; }
  Progress progress() const override { return {}; }
  void library_barrier() override {
    ++barriers;
    group_.barrier({});
  }

  std::int64_t posts = 0;
  std::int64_t completes = 0;
  std::int64_t verifies = 0;
  std::int64_t barriers = 0;
  std::int64_t wrong_verify = -1;  // the call of verify that finds wrong data
  bool keeps_time = true;
  std::vector<std::uint64_t> seeds;
  std::function<void(std::int64_t number)> on_post;

 private:
  Group& group_;
  std::int64_t spin_ns_;
  std::int64_t under_way_ = 0;
};

}  // namespace linkgauge
