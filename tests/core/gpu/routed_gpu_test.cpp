// Routed copies on GPU runtimes: each message takes two copies, through memory of the device that the case names.
#include <gtest/gtest.h>

#include <string>

#include "base/errors.h"
#include "case_maker.h"
#include "measure/sampler.h"
#include "on_vendors.h"

namespace linkgauge {
namespace {

struct Copying : Vendor {
  const char* peer_copy;
};

class RoutedOnGpus : public OnVendors<Copying> {
 protected:
  std::shared_ptr<DeviceRuntime> open() const { return OnVendors::open("devices=3"); }
  int copies() const { return control_.calls(GetParam().peer_copy); }
};

CaseSpec from_0_to_1(const char* variant, Initiator initiator) {
  CaseSpec spec = case_of("copy_engine", Pattern::kUnidirectional, 2, 10000);
  spec.mechanism.variant = variant;
  spec.mechanism.initiator = initiator;
  return spec;
}

TEST_P(RoutedOnGpus, AMessageIsTwoCopiesAndAPipelinedOneTwoAChunk) {
  const auto runtime = open();
  for (const Initiator initiator : {Initiator::kSender, Initiator::kReceiver}) {
    CaseSpec spec = from_0_to_1("", initiator);
    int before = copies();
    EXPECT_TRUE(run_case_on(runtime, spec, 1, 4)[1].ok);
    EXPECT_EQ(copies() - before, 4);
    spec.mechanism.via = 2;
    before = copies();
    EXPECT_TRUE(run_case_on(runtime, spec, 1, 4)[1].ok);
    EXPECT_EQ(copies() - before, 2 * 4);
    spec.mechanism.variant = "pipelined";
    spec.mechanism.chunk_bytes = 3000;
    before = copies();
    EXPECT_TRUE(run_case_on(runtime, spec, 1, 4)[1].ok);
    EXPECT_EQ(copies() - before, 2 * 4 * 4);
  }
}

TEST_P(RoutedOnGpus, AStripedMessageIsOneCopyAndTwoAChunkThroughEachOtherDevice) {
  for (const int devices : {3, 4, 8}) {
    const auto runtime = OnVendors::open("devices=" + std::to_string(devices));
    for (const Initiator initiator : {Initiator::kSender, Initiator::kReceiver}) {
      CaseSpec spec = from_0_to_1("striped", initiator);
      spec.traffic.size_bytes = 256 * (devices - 1) * 4;
      spec.mechanism.chunk_bytes = 512;
      const int before = copies();
      EXPECT_TRUE(run_case_on(runtime, spec, 1, 4)[1].ok);
      const int chunks = 2;  // of each part of 1,024 bytes
      EXPECT_EQ(copies() - before, 4 * (1 + (devices - 2) * 2 * chunks));
    }
  }
}

TEST_P(RoutedOnGpus, KernelsRunOnTheDeviceThatCarriesTheirLeg) {
  const auto runtime = open();
  CaseSpec spec = from_0_to_1("pipelined", Initiator::kSender);
  spec.mechanism.transport = "kernel";
  spec.mechanism.via = 2;
  spec.mechanism.chunk_bytes = 3000;
  spec.mechanism.blocks = 1;
  EXPECT_TRUE(run_case_on(runtime, spec, 2, 3)[1].ok);
}

TEST_P(RoutedOnGpus, GatedHoldsBothDevicesAndTheTimeIsOfBothLegs) {
  const auto runtime = open();
  for (const Initiator initiator : {Initiator::kSender, Initiator::kReceiver}) {
    CaseSpec spec = from_0_to_1("pipelined", initiator);
    spec.mechanism.via = 2;
    spec.mechanism.chunk_bytes = 3000;
    spec.timing.cadence = Cadence::kGated;
    spec.timing.clock = ClockKind::kEvent;
    spec.timing.stop.kind = StopRuleKind::kCount;
    spec.timing.stop.samples = 3;
    on_operations(*runtime, spec, [&](Group& group, Operation& operation) {
      operation.prepare();
      const bool starts = group.rank() == (initiator == Initiator::kSender ? 0 : 1);
      const auto queues = operation.queues();
      ASSERT_EQ(queues.size(), starts ? 2U : 0U);
      if (starts) {
        EXPECT_EQ(queues[0].device, group.rank());
        EXPECT_EQ(queues[1].device, 2);
      }
      SamplerSettings settings;
      settings.runtime = runtime.get();
      settings.timekeeper = Timekeeper::kSender;
      const Measurement measured = sample(operation, group, spec.timing, settings);
      EXPECT_TRUE(measured.verified);
      operation.release();
    });
  }
}

TEST_P(RoutedOnGpus, GivesEverythingBack) {
  {
    const auto runtime = open();
    CaseSpec spec = from_0_to_1("pipelined", Initiator::kSender);
    spec.mechanism.via = 2;
    (void)run_case_on(runtime, spec, 1, 1);
    const int live = control_.live();
    (void)run_case_on(runtime, spec, 1, 1);
    EXPECT_EQ(control_.live(), live);
  }
}

TEST_P(RoutedOnGpus, WithoutMemoryOnThatDeviceTheCaseIsSkippedOnAllRanks) {
  const auto runtime = OnVendors::open("devices=3;memory=67108864");
  runtime->bind_thread(2);
  Buffer all(*runtime, 2, MemoryKind::kDevice, std::size_t{60} << 20);
  CaseSpec spec = from_0_to_1("", Initiator::kSender);
  spec.traffic.size_bytes = 16 << 20;
  EXPECT_TRUE(run_case_on(runtime, spec, 1, 1)[1].ok);
  spec.mechanism.via = 2;
  EXPECT_THROW((void)run_case_on(runtime, spec, 1, 1), Unsupported);
}

INSTANTIATE_TEST_SUITE_P(Vendors, RoutedOnGpus,
                         testing::Values(Copying{{"cuda", "libcuda.so.1"}, "cuMemcpyPeerAsync"},
                                         Copying{{"hip", "libamdhip64.so.7"}, "hipMemcpyPeerAsync"}),
                         [](const auto& vendor) { return std::string(vendor.param.which); });

}  // namespace
}  // namespace linkgauge
