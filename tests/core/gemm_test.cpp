// The matrix product that communication is measured beside: right on any grid, and found where it is not.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "planted_faults.h"
#include "with_sessions.h"

namespace linkgauge {
namespace {

std::shared_ptr<DeviceRuntime> gemm_devices(int devices) {
  RuntimeRequest request;
  request.which = "host";
  request.host_devices = devices;
  return open_runtime(request);
}

CaseSpec product_of(std::int64_t size_bytes, int ranks = 1) {
  CaseSpec spec = case_of("kernel", Pattern::kGemm, ranks, size_bytes);
  spec.timing.stop = {StopRuleKind::kCount, 3, 0.1, 20'000'000'000};
  return spec;
}

TEST(Gemm, IsRightOnEachDeviceForAnySizeThatHoldsATile) {
  // Sides 64, 64 (of 100, and of what holds almost 128), 128 and 192.
  for (const std::int64_t size : {16384, 40000, 65535, 65536, 150000}) {
    with_sessions(gemm_devices(2), 2, [&](Session& session, Group&) {
      const std::optional<CaseResult> result = session.measure(product_of(size, 2));
      ASSERT_TRUE(result.has_value());
      EXPECT_TRUE(result->measurement.verified) << size;
      EXPECT_GE(result->measurement.samples.size(), 3U);
    });
  }
}

TEST(Gemm, OneWrongElementIsFound) {
  for (const char* phase : {"check", "final_check"}) {
    with_sessions(gemm_devices(1), 1, [&](Session& session, Group&) {
      set_fault(session, Fault{FaultKind::kCorrupt, from_word<Moment>(phase), -1, 0});
      const std::optional<CaseResult> result = session.measure(product_of(65536));
      ASSERT_TRUE(result.has_value());
      EXPECT_FALSE(result->measurement.verified);
      EXPECT_EQ(result->measurement.stopped_by, "corrupt");
      EXPECT_GT(result->measurement.verify.bad_bytes, 0U);
    });
  }
}

TEST(Gemm, WhatItCannotBeIsSaid) {
  with_sessions(gemm_devices(1), 1, [&](Session& session, Group&) {
    CaseSpec small = product_of(16383);
    EXPECT_THROW((void)session.measure(small), Unsupported);
    CaseSpec engine = product_of(16384);
    engine.mechanism.transport = "copy_engine";
    EXPECT_THROW((void)session.measure(engine), Unsupported);
    CaseSpec pinned = product_of(16384);
    pinned.places.source.kind = MemoryKind::kPinned;
    EXPECT_THROW((void)session.measure(pinned), Unsupported);
  });
}

}  // namespace
}  // namespace linkgauge
