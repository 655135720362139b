// Managed memory and memory of other devices, in whole operations on the stand-in drivers: what the driver is told,
// what is refused and why, and that the data is right.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/errors.h"
#include "case_maker.h"
#include "group/agreement.h"
#include "on_vendors.h"

namespace linkgauge {
namespace {

struct Managing : Vendor {
  const char* prefetch;
  const char* advise;
};

class Managed : public OnVendors<Managing> {
 protected:
  void SetUp() override {
    OnVendors::SetUp();
    unsetenv("HSA_XNACK");
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void TearDown() override {
    unsetenv("HSA_XNACK");
    OnVendors::TearDown();
  }

  CaseSpec managed_case(Pattern pattern, ManagedUse use, std::int64_t size = 300'001) const {
    CaseSpec spec = case_of("kernel", pattern, 1, size);
    (pattern == Pattern::kDeviceToHost ? spec.places.target.kind : spec.places.source.kind) = MemoryKind::kManaged;
    spec.mechanism.managed = use;
    return spec;
  }

  // One operation after another, each begun from where its pages belong; the last one's verification.
  VerifyResult run(DeviceRuntime& runtime, const CaseSpec& spec, int operations = 2) {
    VerifyResult result;
    on_operations(runtime, spec, [&](Group&, Operation& operation) {
      operation.prepare();
      operation.fill(5);
      for (int i = 0; i < operations; ++i) {
        operation.put_back();
        operation.post();
        operation.complete();
      }
      result = operation.verify(5);
      operation.release();
    });
    return result;
  }
  std::string refusal(const CaseSpec& spec, const std::string& settings = "") {
    const auto runtime = open(settings);
    return what_lacks([&] { (void)run(*runtime, spec); });
  }
  int prefetches() const { return control_.calls(GetParam().prefetch); }
  int advice_calls() const { return control_.calls(GetParam().advise); }
};

TEST_P(Managed, EveryUseMovesTheDataRight) {
  for (const Pattern pattern : {Pattern::kHostToDevice, Pattern::kDeviceToHost}) {
    for (const ManagedUse use :
         {ManagedUse::kDefault, ManagedUse::kMigrate, ManagedUse::kZeroCopy, ManagedUse::kPrefetch,
          ManagedUse::kPreferredDevice, ManagedUse::kPreferredHost, ManagedUse::kAccessedBy, ManagedUse::kReadMostly}) {
      for (const char* transport : {"kernel", "copy_engine"}) {
        setenv("HSA_XNACK", use == ManagedUse::kZeroCopy ? "0" : "1", 1);
        const auto runtime = open();
        CaseSpec spec = managed_case(pattern, use);
        spec.mechanism.transport = transport;
        EXPECT_TRUE(run(*runtime, spec).ok) << to_string(pattern) << " " << to_string(use) << " " << transport;
      }
    }
  }
  EXPECT_EQ(control_.live(), 0);
}

TEST_P(Managed, PrefetchIsPartOfTheOperationAndSoIsNothingElse) {
  setenv("HSA_XNACK", "1", 1);
  const auto runtime = open();
  constexpr int kOperations = 7;
  (void)run(*runtime, managed_case(Pattern::kHostToDevice, ManagedUse::kMigrate), kOperations);
  EXPECT_EQ(prefetches(), kOperations + 1);  // back to the host before each, and before a kernel is chosen
  EXPECT_EQ(advice_calls(), 0);
  control_.configure("");
  (void)run(*runtime, managed_case(Pattern::kHostToDevice, ManagedUse::kPrefetch), kOperations);
  EXPECT_EQ(prefetches(), 2 * kOperations + 1);
}

TEST_P(Managed, AdviceIsGivenOnceAndOnlyWhereAskedFor) {
  setenv("HSA_XNACK", "1", 1);
  for (const auto& [use, cuda_advice_calls, hip_advice_calls] :
       {std::tuple{ManagedUse::kPreferredDevice, 1, 1}, std::tuple{ManagedUse::kPreferredHost, 1, 1},
        std::tuple{ManagedUse::kAccessedBy, 1, 1}, std::tuple{ManagedUse::kReadMostly, 1, 1},
        std::tuple{ManagedUse::kZeroCopy, 2, 0}}) {
    if (use == ManagedUse::kZeroCopy) setenv("HSA_XNACK", "0", 1);
    const auto runtime = open();
    EXPECT_TRUE(run(*runtime, managed_case(Pattern::kHostToDevice, use), 3).ok);
    EXPECT_EQ(advice_calls(), cuda() ? cuda_advice_calls : hip_advice_calls) << to_string(use);
  }
}

TEST_P(Managed, WhatTheDeviceCannotIsRefusedWithTheReason) {
  const CaseSpec prefetch = managed_case(Pattern::kHostToDevice, ManagedUse::kPrefetch);
  EXPECT_NE(refusal(prefetch, "concurrent=0").find("no concurrent managed access"), std::string::npos);
  EXPECT_NE(refusal(prefetch, "managed=0").find("no managed memory"), std::string::npos);
  EXPECT_EQ(refusal(managed_case(Pattern::kHostToDevice, ManagedUse::kDefault), "concurrent=0"), "");
  CaseSpec batched = managed_case(Pattern::kHostToDevice, ManagedUse::kPrefetch);
  batched.timing.cadence = Cadence::kStreaming;
  setenv("HSA_XNACK", "1", 1);
  EXPECT_NE(refusal(batched).find("first operation of a batch"), std::string::npos);
  CaseSpec by_events = managed_case(Pattern::kDeviceToHost, ManagedUse::kMigrate);
  by_events.timing.clock = ClockKind::kEvent;
  EXPECT_NE(refusal(by_events).find("use clock host"), std::string::npos);
  EXPECT_NE(refusal(managed_case(Pattern::kLocalCopy, ManagedUse::kPrefetch)).find("first operation only"),
            std::string::npos);
  EXPECT_NE(refusal(managed_case(Pattern::kUnidirectional, ManagedUse::kPrefetch)).find("not of unidirectional"),
            std::string::npos);
  CaseSpec none = case_of("kernel", Pattern::kHostToDevice, 1, 64);
  none.places.source.kind = MemoryKind::kPinned;
  none.mechanism.managed = ManagedUse::kPrefetch;
  EXPECT_NE(refusal(none).find("the case has none"), std::string::npos);
}

TEST_P(Managed, TwoBuffersTogetherAreNeverLargerThanWhatIsFree) {
  setenv("HSA_XNACK", "1", 1);
  const std::string memory = "memory=" + std::to_string(64 << 20);
  const auto runtime = open(memory);
  CaseSpec spec = managed_case(Pattern::kStreamCopy, ManagedUse::kDefault, 40 << 20);
  spec.places.target.kind = MemoryKind::kManaged;
  const std::string reason = refusal(spec, memory);
  EXPECT_NE(reason.find("managed memory"), std::string::npos) << reason;
  EXPECT_EQ(control_.live(), 0);
}

TEST_P(Managed, StreamCopyReachesMemoryOfOtherDevicesAndOfTheHost) {
  for (const auto& [source, target] : {std::pair{1, -1}, std::pair{-1, 1}, std::pair{1, 1}, std::pair{0, 1}}) {
    for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kManaged}) {
      const auto runtime = open();
      CaseSpec spec = case_of("kernel", Pattern::kStreamCopy, 1, 123'457);
      spec.places.source_device = source;
      spec.places.target_device = target;
      spec.places.source.kind = kind;
      EXPECT_TRUE(run(*runtime, spec).ok) << source << " " << target << " " << to_string(kind);
    }
  }
  CaseSpec far = case_of("kernel", Pattern::kStreamCopy, 1, 4096);
  far.places.source_device = 1;
  EXPECT_NE(refusal(far, "peer=0").find("may not access memory of device 1"), std::string::npos);
  CaseSpec wrong = case_of("kernel", Pattern::kHostToDevice, 1, 4096);
  wrong.places.source.kind = MemoryKind::kPinned;
  wrong.places.source_device = 1;
  EXPECT_NE(refusal(wrong).find("are of stream_copy"), std::string::npos);
}

// Both ways at once have a managed buffer each, one that begins on the host and one that ends there.
TEST_P(Managed, BothWaysHaveBuffersOfTheirOwn) {
  setenv("HSA_XNACK", "1", 1);
  for (const ManagedUse use : {ManagedUse::kDefault, ManagedUse::kMigrate, ManagedUse::kPrefetch}) {
    for (const char* transport : {"kernel", "copy_engine"}) {
      const auto runtime = open();
      CaseSpec spec = managed_case(Pattern::kHostDeviceBidirectional, use);
      spec.mechanism.transport = transport;
      constexpr int kOperations = 5;
      EXPECT_TRUE(run(*runtime, spec, kOperations).ok) << to_string(use) << " " << transport;
      // Put back before each operation, and with a kernel before it is chosen; told in each only to prefetch.
      const int chosen = spec.mechanism.transport == "kernel" ? 2 : 0;
      const int told = use == ManagedUse::kPrefetch ? 2 * kOperations : 0;
      EXPECT_EQ(prefetches(), 2 * kOperations + chosen + told) << to_string(use) << " " << transport;
    }
  }
  CaseSpec by_events = managed_case(Pattern::kHostDeviceBidirectional, ManagedUse::kMigrate);
  by_events.timing.clock = ClockKind::kEvent;
  EXPECT_NE(refusal(by_events).find("use clock host"), std::string::npos);
  CaseSpec both_managed = managed_case(Pattern::kHostDeviceBidirectional, ManagedUse::kDefault);
  both_managed.places.target.kind = MemoryKind::kManaged;
  EXPECT_NE(refusal(both_managed).find("one end in managed memory"), std::string::npos);
  EXPECT_EQ(control_.live(), 0);
}

TEST_P(Managed, KernelsReachPageableMemoryWhereTheDeviceCan) {
  const char* name = cuda() ? "CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS" : "hipDeviceAttributePageableMemoryAccess";
  const auto pageable_case = [](Pattern pattern) {
    CaseSpec spec = case_of("kernel", pattern, 1, 300'001);
    (pattern == Pattern::kDeviceToHost ? spec.places.target.kind : spec.places.source.kind) = MemoryKind::kPageable;
    return spec;
  };
  for (const Pattern pattern : {Pattern::kHostToDevice, Pattern::kDeviceToHost, Pattern::kHostDeviceBidirectional,
                                Pattern::kStreamCopy, Pattern::kUnidirectional}) {
    const CaseSpec spec = pageable_case(pattern);
    EXPECT_NE(refusal(spec, "pageable=0").find(name), std::string::npos) << to_string(pattern);
    for (const char* reached : {"pageable=1", "pageable=2"}) {
      const auto runtime = open(reached);
      EXPECT_TRUE(run(*runtime, spec).ok) << to_string(pattern) << " " << reached;
      EXPECT_EQ(prefetches() + advice_calls(), 0);
    }
    CaseSpec copied = spec;
    copied.mechanism.transport = "copy_engine";
    if (pattern != Pattern::kStreamCopy) {
      EXPECT_EQ(refusal(copied, "pageable=0"), "") << to_string(pattern);
    }
  }
  // Pages that move do so once a batch, and events do not time the host's fetching them.
  CaseSpec batched = pageable_case(Pattern::kHostToDevice);
  batched.timing.cadence = Cadence::kStreaming;
  EXPECT_NE(refusal(batched, "pageable=1").find("first operation of a batch"), std::string::npos);
  EXPECT_EQ(refusal(batched, "pageable=2"), "");
  batched.mechanism.transport = "copy_engine";
  EXPECT_EQ(refusal(batched, "pageable=1"), "");
  CaseSpec by_events = pageable_case(Pattern::kDeviceToHost);
  by_events.timing.clock = ClockKind::kEvent;
  EXPECT_NE(refusal(by_events, "pageable=1").find("use clock host"), std::string::npos);
  EXPECT_EQ(refusal(by_events, "pageable=2"), "");
  const CaseSpec chase = pageable_case(Pattern::kPointerChase);
  EXPECT_NE(refusal(chase, "pageable=0").find(name), std::string::npos);
  EXPECT_NE(refusal(chase, "pageable=1").find("move to the device"), std::string::npos);
  EXPECT_EQ(refusal(chase, "pageable=2"), "");
  CaseSpec reduced = case_of("kernel", Pattern::kAllreduce, 2, 4096);
  reduced.places.source.kind = reduced.places.target.kind = MemoryKind::kPageable;
  const auto runtime = open("pageable=0");
  try {
    (void)run_case_on(runtime, reduced);
    FAIL() << "reduced what no kernel reaches";
  } catch (const Unsupported& reason) {
    EXPECT_NE(std::string(reason.what()).find(name), std::string::npos) << reason.what();
  }
  EXPECT_EQ(control_.live(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Vendors, Managed,
    ::testing::Values(Managing{{"cuda", "libcuda.so.1"}, "cuMemPrefetchAsync_v2", "cuMemAdvise_v2"},
                      Managing{{"hip", "libamdhip64.so.7"}, "hipMemPrefetchAsync", "hipMemAdvise"}),
    [](const auto& tested) { return std::string(tested.param.which); });

TEST(ManagedOnHip, MigratingAndZeroCopyFollowTheEnvironment) {
  const StandInControl control("libamdhip64.so.7");
  control.configure("");
  RuntimeRequest request;
  request.which = "hip";
  for (const char* retry : {"0", "1"}) {
    setenv("HSA_XNACK", retry, 1);
    const auto runtime = open_runtime(request);
    const bool retries = retry[0] == '1';
    EXPECT_EQ(runtime->managed_migrates(0), retries);
    EXPECT_EQ(runtime->why_not_managed(0, ManagedUse::kMigrate).empty(), retries);
    EXPECT_EQ(runtime->why_not_managed(0, ManagedUse::kZeroCopy).empty(), !retries);
  }
  unsetenv("HSA_XNACK");
}

TEST(ManagedOnCuda, DriversBeforeLocationsTakeTheOlderCalls) {
  const StandInControl control("libcuda.so.1");
  control.configure("driver=12010");
  RuntimeRequest request;
  request.which = "cuda";
  const auto runtime = open_runtime(request);
  runtime->bind_thread(0);
  const Buffer buffer(*runtime, 0, MemoryKind::kManaged, 1 << 20);
  Stream stream(*runtime, 0);
  runtime->advise_managed(buffer.data(), buffer.size(), 0, ManagedUse::kZeroCopy);
  runtime->prefetch_managed(buffer.data(), buffer.size(), -1, stream.handle());
  runtime->prefetch_managed(buffer.data(), buffer.size(), 1, stream.handle());
  stream.synchronize();
  EXPECT_EQ(control.calls("cuMemAdvise"), 2);
  EXPECT_EQ(control.calls("cuMemPrefetchAsync"), 2);
  EXPECT_EQ(control.calls("cuMemAdvise_v2") + control.calls("cuMemPrefetchAsync_v2"), 0);
}

}  // namespace
}  // namespace linkgauge
