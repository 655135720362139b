// UCX, libfabric and NIXL in sessions: what each keeps from case to case, what a failure leaves of it, and what it says
// of itself.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/errors.h"
#include "base/patterns.h"
#include "case_maker.h"
#include "planted_faults.h"
#include "refused.h"
#include "with_sessions.h"

// UCX 1.20 leaves 200 bytes of its own behind for some workers that are destroyed with requests under way.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier): the sanitizer's name
extern "C" const char* __lsan_default_suppressions() { return "leak:ucs_posix_memalign\n"; }

namespace linkgauge {
namespace {

CaseSpec nic_case(const Mechanism& mechanism, Pattern pattern, std::vector<int> ranks, std::int64_t size) {
  CaseSpec spec = case_of(mechanism, pattern, 0, size);
  spec.places.rank_list = ranks;
  spec.places.devices = std::move(ranks);
  spec.timing.warmup = 1;
  spec.timing.stop.kind = StopRuleKind::kCount;
  spec.timing.stop.samples = 3;
  spec.timing.stop.time_ns = 20'000'000'000;
  return spec;
}

void expect_right(const std::optional<CaseResult>& result) {
  if (!result) return;  // a rank that sat out
  EXPECT_TRUE(result->load.number > 0 ? result->load.verify.ok : result->measurement.verified);
}

// By mechanism, and by the phase at which a rank fails.
class NicSession : public testing::TestWithParam<std::tuple<Mechanism, const char*>> {
 protected:
  void SetUp() override {
    // NIXL's wheel (1.5.1) brings a libnl beside the system's, which UCX's efa module takes: a normal exit faults.
    setenv("UCX_MODULES", "^efa", 0);
    if (const std::string reason = why_not_tested(transport()); !reason.empty()) GTEST_SKIP() << reason;
  }
  const Mechanism& mechanism() const { return std::get<0>(GetParam()); }
  const std::string& transport() const { return mechanism().transport; }
  const char* phase() const { return std::get<1>(GetParam()); }
  CaseSpec of(Pattern pattern, std::vector<int> ranks, std::int64_t size) const {
    return nic_case(mechanism(), pattern, std::move(ranks), size);
  }
};
constexpr Initiator kSends = Initiator::kSender;
constexpr Mechanism kOfUcxAndOfi[] = {{"ucx", "tag", kSends}, {"ucx", "put", kSends}, {"ucx", "get", kSends},
                                      {"ofi", "tag", kSends}, {"ofi", "put", kSends}, {"ofi", "get", kSends}};
constexpr Mechanism kOfNixl[] = {{"nixl", "put", kSends}, {"nixl", "get", kSends}};
const auto kPhases = testing::Values("prepare", "check", "time", "final_check");
INSTANTIATE_TEST_SUITE_P(Failures, NicSession, testing::Combine(testing::ValuesIn(kOfUcxAndOfi), kPhases));
INSTANTIATE_TEST_SUITE_P(NixlFails, NicSession, testing::Combine(testing::ValuesIn(kOfNixl), kPhases));

// The rank that took no part keeps its worker, with a connection to workers that are gone; 1 MiB goes by rendezvous.
TEST_P(NicSession, AFailureReachesTheOthersAndLeavesAllUsable) {
  with_sessions(host_devices(3), 3, [&](Session& session, Group& group) {
    for (const std::int64_t size : {64, 1 << 20}) {
      expect_right(session.measure(of(Pattern::kAlltoall, {0, 1, 2}, size)));
      set_fault(session, Fault{FaultKind::kThrow, from_word<Moment>(phase()), -1, 1});
      if (group.rank() == 2) {
        EXPECT_FALSE(session.measure(of(Pattern::kBidirectional, {0, 1}, size)).has_value());
      } else {
        EXPECT_THROW(session.measure(of(Pattern::kBidirectional, {0, 1}, size)), Error);
      }
      set_fault(session, std::nullopt);
      expect_right(session.measure(of(Pattern::kAlltoall, {2, 0, 1}, size)));
      expect_right(session.measure(of(Pattern::kPingpong, {2, 1}, size)));
    }
  });
}

class Library : public NicSession {};
INSTANTIATE_TEST_SUITE_P(Variants, Library, testing::Combine(testing::ValuesIn(kOfUcxAndOfi), testing::Values("")));
INSTANTIATE_TEST_SUITE_P(Nixl, Library, testing::Combine(testing::ValuesIn(kOfNixl), testing::Values("")));
class Nic : public NicSession {};
INSTANTIATE_TEST_SUITE_P(Variants, Nic, testing::Combine(testing::ValuesIn(kOfUcxAndOfi), testing::Values("")));
class Nixl : public NicSession {};
INSTANTIATE_TEST_SUITE_P(Variants, Nixl, testing::Combine(testing::ValuesIn(kOfNixl), testing::Values("")));

TEST_P(Nic, SaysItsVersionAndItsWays) {
  with_sessions(host_devices(2), 2, [&](Session& session, Group&) {
    const auto result = session.measure(of(Pattern::kUnidirectional, {0, 1}, 4096));
    ASSERT_TRUE(result.has_value());
    EXPECT_NE(result->chosen.at(transport()).find('.'), std::string::npos);
    // libfabric names its provider; a UCX that tells names at least one way, version 1.12 and older do not.
    const auto ways = result->chosen.find("ways");
    EXPECT_TRUE(std::string_view(transport()) == "ucx" || ways != result->chosen.end());
    if (ways != result->chosen.end() && !ways->second.empty()) {
      EXPECT_NE(ways->second.find('/'), std::string::npos);
    }
  });
}

// Each page of a message is a descriptor of its own, the last one short; what is under way of one shape has requests of
// its own.
TEST_P(Nixl, TakesPagesOfOneMessageAtOnce) {
  with_sessions(host_devices(2), 2, [&](Session& session, Group&) {
    for (const std::int64_t page : {1, 96, 4096, 100'000}) {
      CaseSpec spec = of(Pattern::kBidirectional, {0, 1}, 10'000);
      spec.mechanism.chunk_bytes = page;
      spec.traffic.window = 3;
      const auto result = session.measure(spec);
      expect_right(result);
      EXPECT_EQ(result->chosen.at("backend"), "UCX");
      EXPECT_EQ(result->chosen.at("descriptors"), std::to_string((10'000 + page - 1) / page) + " a message");
    }
  });
}

TEST_P(Library, KeepsWindowsBatchesAndLoadsApart) {
  with_sessions(host_devices(4), 4, [&](Session& session, Group&) {
    CaseSpec spec = of(Pattern::kUnidirectional, {0, 1}, 10'000);
    spec.traffic.window = 64;
    spec.timing.cadence = Cadence::kStreaming;
    spec.timing.batch = 5;
    spec.jobs.loads.push_back({of(Pattern::kBidirectional, {2, 3}, 1 << 16), {}});
    expect_right(session.measure(spec));
  });
}

TEST_P(Nic, TakesBuffersThatAreRegisteredAhead) {
  with_sessions(host_devices(3), 3, [&](Session& session, Group&) {
    for (const Pattern pattern : {Pattern::kPingpong, Pattern::kAlltoall, Pattern::kReduce}) {
      CaseSpec spec = traits_of(pattern).one_pair ? of(pattern, {0, 1}, 1 << 20) : of(pattern, {0, 1, 2}, 120'000);
      spec.mechanism.buffer = "registered";
      try {
        expect_right(session.measure(spec));
      } catch (const Unsupported& error) {
        EXPECT_NE(std::string(error.what()).find("1.13"), std::string::npos) << error.what();  // an older UCX
      }
    }
  });
}

// Each case has a context of its own settings; the rank that sits out has left its connections in time.
TEST_P(Nic, HasSettingsOfACasesOwn) {
  with_sessions(host_devices(3), 3, [&](Session& session, Group& group) {
    CaseSpec pair = of(Pattern::kBidirectional, {0, 1}, 100'000);
    CaseSpec all = of(Pattern::kAlltoall, {0, 1, 2}, 120'000);
    if (std::string_view(transport()) != "ucx") {
      pair.mechanism.settings = "FI_TCP_NODELAY=1";
      if (group.rank() < 2) expect_refused(session, pair, "mpi, ucx and ccl");
      if (group.rank() == 2) session.measure(pair);
      return;
    }
    for (const char* settings : {"UCX_RNDV_THRESH=1024", "", "UCX_RNDV_THRESH=inf UCX_ZCOPY_THRESH=inf"}) {
      all.mechanism.settings = settings;
      expect_right(session.measure(all));
      pair.mechanism.settings = settings;
      expect_right(session.measure(pair));
      pair.mechanism.settings = "UCX_BCOPY_THRESH=64";
      expect_right(session.measure(pair));
    }
    for (const char* wrong : {"UCX_RNDV_THRESH=many", "UCX_PROTO_ENABLE=maybe"}) {  // of a name UCX only warns
      pair.mechanism.settings = wrong;
      if (group.rank() == 2) {
        EXPECT_FALSE(session.measure(pair).has_value());
        continue;
      }
      expect_refused(session, pair, wrong);
    }
    expect_right(session.measure(all));
  });
}

TEST_P(Nic, NamesTheBuffersThatItTakes) {
  with_sessions(host_devices(2), 2, [&](Session& session, Group&) {
    CaseSpec spec = of(Pattern::kPingpong, {0, 1}, 8);
    spec.mechanism.buffer = "symmetric";
    expect_refused(session, spec, "plain and registered");
  });
}

TEST_P(Library, NamesWhatItCannotDo) {
  with_sessions(host_devices(2), 2, [&](Session& session, Group&) {
    CaseSpec spec = of(Pattern::kPingpong, {0, 1}, 8);
    spec.mechanism.variant = "shove";
    expect_refused(session, spec, "put and get");
    spec = of(Pattern::kPingpong, {0, 1}, 8);
    spec.mechanism.algorithm = "ring";
    expect_refused(session, spec, "leave --algorithm out");
    spec.mechanism.algorithm.clear();
    spec.mechanism.via = 0;
    expect_refused(session, spec, "leave --via out");
  });
}

}  // namespace
}  // namespace linkgauge
