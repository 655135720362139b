// UCX and NIXL in sessions: what they keep from case to case, what a failure leaves of it, what they say of themselves.
#include <gtest/gtest.h>

#include <string>

#include "case_maker.h"
#include "errors.h"
#include "with_sessions.h"

// UCX 1.20 leaves 200 bytes of its own behind for some workers that are destroyed with requests under way.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier): the sanitizer's name
extern "C" const char* __lsan_default_suppressions() { return "leak:ucs_posix_memalign\n"; }

namespace linkgauge {
namespace {

CaseSpec small_case(const Mechanism& mechanism, Pattern pattern, std::vector<int> ranks, std::int64_t size) {
  CaseSpec spec = case_of(mechanism, pattern, 0, size);
  spec.rank_list = ranks;
  spec.devices = std::move(ranks);
  spec.warmup = 1;
  spec.stop.kind = StopRuleKind::kCount;
  spec.stop.samples = 3;
  spec.stop.time_ns = 20'000'000'000;
  return spec;
}

void expect_right(const std::optional<CaseResult>& result) {
  if (!result) return;  // a rank that sat out
  EXPECT_TRUE(result->load.number > 0 ? result->load.verify.ok : result->measurement.verified);
}

// By mechanism, and by the phase at which a rank fails.
class LibrarySession : public testing::TestWithParam<std::tuple<Mechanism, const char*>> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not_here(mechanism().transport); !reason.empty()) GTEST_SKIP() << reason;
  }
  const Mechanism& mechanism() const { return std::get<0>(GetParam()); }
  const char* phase() const { return std::get<1>(GetParam()); }
};
constexpr Mechanism kOfUcx[] = {
    {"ucx", "tag", Initiator::kSender}, {"ucx", "put", Initiator::kSender}, {"ucx", "get", Initiator::kSender}};
constexpr Mechanism kOfNixl[] = {{"nixl", "put", Initiator::kSender}, {"nixl", "get", Initiator::kSender}};
const auto kPhases = testing::Values("prepare", "check", "time", "final_check");
INSTANTIATE_TEST_SUITE_P(UcxFails, LibrarySession, testing::Combine(testing::ValuesIn(kOfUcx), kPhases));
INSTANTIATE_TEST_SUITE_P(NixlFails, LibrarySession, testing::Combine(testing::ValuesIn(kOfNixl), kPhases));

// The rank that took no part keeps its worker, with a connection to workers that are gone; 1 MiB goes by rendezvous.
TEST_P(LibrarySession, AFailureReachesTheOthersAndLeavesAllUsable) {
  with_sessions(host_devices(3), 3, [&](Session& session, Group& group) {
    for (const std::int64_t size : {64, 1 << 20}) {
      expect_right(session.measure(small_case(mechanism(), Pattern::kAlltoall, {0, 1, 2}, size)));
      session.set_fault(Fault{FaultKind::kThrow, phase(), -1, 1});
      if (group.rank() == 2) {
        EXPECT_FALSE(session.measure(small_case(mechanism(), Pattern::kBidirectional, {0, 1}, size)).has_value());
      } else {
        EXPECT_THROW(session.measure(small_case(mechanism(), Pattern::kBidirectional, {0, 1}, size)), Error);
      }
      session.set_fault(std::nullopt);
      expect_right(session.measure(small_case(mechanism(), Pattern::kAlltoall, {2, 0, 1}, size)));
      expect_right(session.measure(small_case(mechanism(), Pattern::kPingpong, {2, 1}, size)));
    }
  });
}

class Library : public LibrarySession {};
INSTANTIATE_TEST_SUITE_P(Ucx, Library, testing::Combine(testing::ValuesIn(kOfUcx), testing::Values("")));
INSTANTIATE_TEST_SUITE_P(Nixl, Library, testing::Combine(testing::ValuesIn(kOfNixl), testing::Values("")));
class Ucx : public LibrarySession {};
INSTANTIATE_TEST_SUITE_P(Variants, Ucx, testing::Combine(testing::ValuesIn(kOfUcx), testing::Values("")));
class Nixl : public LibrarySession {};
INSTANTIATE_TEST_SUITE_P(Variants, Nixl, testing::Combine(testing::ValuesIn(kOfNixl), testing::Values("")));

// Each page of a message is a descriptor of its own, the last one short; what is under way of one shape has requests of
// its own.
TEST_P(Nixl, TakesPagesOfOneMessageAtOnce) {
  with_sessions(host_devices(2), 2, [&](Session& session, Group&) {
    for (const std::int64_t page : {1, 96, 4096, 100'000}) {
      CaseSpec spec = small_case(mechanism(), Pattern::kBidirectional, {0, 1}, 10'000);
      spec.chunk_bytes = page;
      spec.window = 3;
      const auto result = session.measure(spec);
      expect_right(result);
      EXPECT_EQ(result->chosen.at("backend"), "UCX");
      EXPECT_EQ(result->chosen.at("descriptors"), std::to_string((10'000 + page - 1) / page) + " a message");
    }
  });
}

TEST_P(Ucx, SaysItsVersionAndItsWays) {
  with_sessions(host_devices(2), 2, [&](Session& session, Group&) {
    const auto result = session.measure(small_case(mechanism(), Pattern::kUnidirectional, {0, 1}, 4096));
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->chosen.at("ucx").substr(0, 2), "1.");
    // A UCX that tells names at least one way; version 1.12 and older do not.
    const auto ways = result->chosen.find("ways");
    if (ways != result->chosen.end() && !ways->second.empty()) {
      EXPECT_NE(ways->second.find('/'), std::string::npos);
    }
  });
}

TEST_P(Library, KeepsWindowsBatchesAndLoadsApart) {
  with_sessions(host_devices(4), 4, [&](Session& session, Group&) {
    CaseSpec spec = small_case(mechanism(), Pattern::kUnidirectional, {0, 1}, 10'000);
    spec.window = 64;
    spec.cadence = Cadence::kStreaming;
    spec.batch = 5;
    spec.loads.push_back({small_case(mechanism(), Pattern::kBidirectional, {2, 3}, 1 << 16), {}});
    expect_right(session.measure(spec));
  });
}

TEST_P(Library, NamesWhatItCannotDo) {
  with_sessions(host_devices(2), 2, [&](Session& session, Group&) {
    CaseSpec spec = small_case(mechanism(), Pattern::kPingpong, {0, 1}, 8);
    spec.variant = "shove";
    EXPECT_NE(session.supports(spec).find("put and get"), std::string::npos);
    spec = small_case(mechanism(), Pattern::kPingpong, {0, 1}, 8);
    spec.algorithm = "ring";
    EXPECT_NE(session.supports(spec).find("leave --algorithm out"), std::string::npos);
    spec.algorithm.clear();
    spec.via = 0;
    EXPECT_NE(session.supports(spec).find("leave --via out"), std::string::npos);
  });
}

}  // namespace
}  // namespace linkgauge
