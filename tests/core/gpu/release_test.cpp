// What a case leaves in a device's queues is over before its memory goes: destroying a vendor's stream waits for
// nothing by itself.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "case_maker.h"
#include "on_vendors.h"
#include "planted_faults.h"
#include "with_sessions.h"

namespace linkgauge {
namespace {

constexpr char kAtWork[] = "stream_destroyed_at_work";

class Release : public OnVendors<Vendor> {};

TEST_P(Release, AStreamEndsItsWorkBeforeItGoes) {
  const auto runtime = open("devices=2");
  runtime->bind_thread(0);
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  Buffer source(*runtime, 0, MemoryKind::kDevice, kBytes);
  Buffer target(*runtime, 0, MemoryKind::kDevice, kBytes);
  Stream stream(*runtime, 0);
  for (int i = 0; i < 8; ++i) runtime->copy_async(target.data(), 0, source.data(), 0, kBytes, stream.handle());
  stream = Stream();
  EXPECT_EQ(control_.calls(kAtWork), 0);
}

// Each rank's copies are queued when the other fails; neither frees what they touch before they are done.
TEST_P(Release, AFailureOfAPeerLeavesNoWorkBehind) {
  const auto runtime = open("devices=2");
  for (const Pattern pattern : {Pattern::kLocalCopy, Pattern::kRingShift, Pattern::kFlagPingpong}) {
    for (const char* transport : {"copy_engine", "kernel"}) {
      if (pattern == Pattern::kFlagPingpong && std::string(transport) == "copy_engine") continue;
      with_sessions(runtime, 2, [&](Session& session, Group& group) {
        CaseSpec spec = case_of(transport, pattern, 2, std::int64_t{8} << 20);
        spec.timing.cadence = pattern == Pattern::kFlagPingpong ? Cadence::kIsolated : Cadence::kGated;
        spec.timing.clock = ClockKind::kEvent;
        spec.timing.batch = 4;
        spec.mechanism.blocks = 1;
        set_fault(session, Fault{FaultKind::kThrow, Moment::kAlign, -1, 1});
        if (group.rank() == 0) {
          EXPECT_THROW(session.measure(spec), Error);
        } else {
          EXPECT_THROW(session.measure(spec), RuntimeCallError);
        }
      });
      EXPECT_EQ(control_.calls(kAtWork), 0) << transport << ' ' << to_string(pattern);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vendors, Release,
                         testing::Values(Vendor{"cuda", "libcuda.so.1"}, Vendor{"hip", "libamdhip64.so.7"}),
                         [](const auto& vendor) { return std::string(vendor.param.which); });

}  // namespace
}  // namespace linkgauge
