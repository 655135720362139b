// Copies through a third device: right in every pattern that is routed, refused where they cannot be.
#include "transport/memory/routed.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "case_maker.h"
#include "group/agreement.h"

namespace linkgauge {
namespace {

CaseSpec routed_case(const Mechanism& way, Pattern pattern, int ranks, std::int64_t size) {
  CaseSpec spec = case_of(way, pattern, ranks, size);
  if (way.variant != "striped") spec.mechanism.via = ranks;  // the device behind those that take part
  return spec;
}

class EveryWay : public testing::TestWithParam<Mechanism> {};

TEST_P(EveryWay, MovesEveryByteThroughTheDevice) {
  for (const Pattern pattern :
       {Pattern::kPingpong, Pattern::kUnidirectional, Pattern::kBidirectional, Pattern::kRingShift}) {
    for (const int ranks : {2, 3}) {
      if (ranks > 2 && pattern != Pattern::kRingShift) continue;
      // Less than a chunk, whole slots, a short last chunk, several turns through the slots.
      for (const std::int64_t size : {1, 4096, 4 * 4096, 5 * 4096 + 3, 100003}) {
        if (kThreadSanitizer && size < 100003 && size != 1) continue;
        for (const int window : {1, 3}) {
          CaseSpec spec = routed_case(GetParam(), pattern, ranks, size);
          spec.traffic.window = pattern == Pattern::kRingShift || pattern == Pattern::kPingpong ? 1 : window;
          // Of those that stripe between two, through one other device or six.
          const int devices = ranks + (window > 1 ? 6 : 1);
          for (const VerifyResult& result : run_case_on(host_devices(devices), spec, 2, 3)) {
            EXPECT_TRUE(result.ok) << to_string(pattern) << " of " << size << " by " << ranks << " ranks, "
                                   << result.bad_bytes << " bad from " << result.first_bad_offset;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, EveryWay,
                         testing::Values(Mechanism{"copy_engine", "", Initiator::kSender},
                                         Mechanism{"copy_engine", "store_and_forward", Initiator::kReceiver},
                                         Mechanism{"copy_engine", "pipelined", Initiator::kSender},
                                         Mechanism{"copy_engine", "pipelined", Initiator::kReceiver},
                                         Mechanism{"copy_engine", "striped", Initiator::kSender},
                                         Mechanism{"copy_engine", "striped", Initiator::kReceiver},
                                         Mechanism{"kernel", "striped", Initiator::kSender},
                                         Mechanism{"kernel", "pull", Initiator::kSender},
                                         Mechanism{"kernel", "push", Initiator::kSender},
                                         Mechanism{"kernel", "pipelined", Initiator::kSender},
                                         Mechanism{"kernel", "pipelined", Initiator::kReceiver}));

std::string refusal(const CaseSpec& spec) {
  return what_lacks([&] { (void)run_case(spec, 1, 1); });
}

TEST(Routed, SaysWhatCannotBeRouted) {
  const Mechanism way{"copy_engine", "", Initiator::kSender};
  CaseSpec spec = routed_case(way, Pattern::kUnidirectional, 2, 64);
  spec.mechanism.via = 1;
  EXPECT_NE(refusal(spec).find("device 1 is an end of the copy itself"), std::string::npos) << refusal(spec);
  spec = routed_case(way, Pattern::kUnidirectional, 1, 64);
  EXPECT_NE(refusal(spec).find("inside one device"), std::string::npos) << refusal(spec);
  spec = routed_case(way, Pattern::kAlltoall, 2, 64);
  EXPECT_NE(refusal(spec).find("alltoall is not routed"), std::string::npos) << refusal(spec);
  spec = routed_case(way, Pattern::kUnidirectional, 2, 64);
  spec.places.target.kind = MemoryKind::kPinned;
  EXPECT_NE(refusal(spec).find("pinned memory"), std::string::npos) << refusal(spec);
  spec = case_of("copy_engine", Pattern::kUnidirectional, 2, 64);
  spec.mechanism.variant = "pipelined";
  EXPECT_NE(refusal(spec).find("name that device with --via"), std::string::npos) << refusal(spec);
  spec.mechanism.variant = "striped";
  spec.mechanism.via = 2;
  EXPECT_NE(refusal(spec).find("leave --via out"), std::string::npos) << refusal(spec);
  spec = case_of("copy_engine", Pattern::kAlltoall, 2, 64);
  spec.mechanism.variant = "striped";
  EXPECT_NE(refusal(spec).find("Leave --variant out"), std::string::npos) << refusal(spec);
  spec = routed_case({"staging", "", Initiator::kSender}, Pattern::kUnidirectional, 2, 64);
  spec.mechanism.host_leg = "memcpy";
  EXPECT_NE(refusal(spec).find("leave --via out"), std::string::npos) << refusal(spec);
  spec = routed_case(way, Pattern::kLocalCopy, 1, 64);
  EXPECT_NE(refusal(spec).find("local_copy is not routed"), std::string::npos) << refusal(spec);
}

TEST(Routed, AHeldQueueMustTakeAnOperation) {
  CaseSpec spec = routed_case({"copy_engine", "pipelined", Initiator::kSender}, Pattern::kUnidirectional, 2, 4096);
  spec.timing.cadence = Cadence::kGated;
  EXPECT_EQ(refusal(spec), "");
  spec.traffic.size_bytes = 4096 * 400;
  EXPECT_NE(refusal(spec).find("1200 commands"), std::string::npos) << refusal(spec);
  EXPECT_NE(refusal(spec).find("larger --chunk"), std::string::npos) << refusal(spec);
}

TEST(Routed, ChunksAreChosenBetweenTheCostOfACopyAndTheLengthOfThePipeline) {
  CaseSpec spec = routed_case({"copy_engine", "", Initiator::kSender}, Pattern::kUnidirectional, 2, 1);
  for (const std::int64_t size : {1L, 64L << 10, 1L << 20, 16L << 20, 1L << 30}) {
    spec.traffic.size_bytes = size;
    spec.mechanism.variant = "store_and_forward";
    EXPECT_EQ(route_shape(spec).slots, 1U);
    EXPECT_EQ(route_shape(spec).chunk_bytes, static_cast<std::size_t>(size));
    spec.mechanism.variant = "pipelined";
    spec.mechanism.chunk_bytes = 0;
    const RouteShape shape = route_shape(spec);
    EXPECT_GT(shape.slots, 1U);
    EXPECT_LE(shape.chunk_bytes, static_cast<std::size_t>(size));
    EXPECT_LE(shape.chunk_bytes, std::size_t{4} << 20);
    spec.mechanism.chunk_bytes = 100;
    EXPECT_EQ(route_shape(spec).chunk_bytes, std::min<std::size_t>(100, static_cast<std::size_t>(size)));
  }
}

}  // namespace
}  // namespace linkgauge
