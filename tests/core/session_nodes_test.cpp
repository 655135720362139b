// Sessions whose ranks are on several nodes, where one node lacks what the others have: all ranks learn why.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "base/errors.h"
#include "case_maker.h"
#include "processes.h"
#include "run/session.h"

namespace linkgauge {
namespace {

// Nothing but the meetings crosses nodes: each node's ranks are a group.
CaseSpec case_within_nodes() {
  CaseSpec spec = case_of("copy_engine", Pattern::kAllgather, 4, 4096);
  spec.places.groups = 2;
  spec.timing.stop.kind = StopRuleKind::kCount;
  spec.timing.stop.samples = 3;
  spec.timing.stop.time_ns = 20'000'000'000;
  return spec;
}

// The reason with which a rank's measure fails; what else happens is an error of the test.
std::string failure_of(Session& session, const CaseSpec& spec) {
  try {
    (void)session.measure(spec);
  } catch (const MemoryError& error) {
    return error.what();
  } catch (const PeerError& error) {
    return error.what();
  }
  throw std::runtime_error("the case was measured");
}

// Node 1 has shared memory for so many groups of the case: for none, and for that of all ranks but not for that of its
// own half. Every rank of both nodes must say why, and the next case must be measured.
TEST(SessionOfNodes, ANodeWithoutSharedMemoryFailsTheCaseOnEveryRank) {
  for (const int enough : {0, 1}) {
    Processes processes({0, 0, 1, 1});
    const std::vector<int> statuses = processes.run([enough](Group& group) {
      std::string told;
      SessionOptions options;
      options.runtime = host_devices(4);
      options.group = std::shared_ptr<Group>(std::shared_ptr<void>(), &group);
      options.host_clock = {20, 1};
      options.on_failure = [&](const std::string& reason) { told = reason; };
      Session session(options);
      const CaseSpec spec = case_within_nodes();
      {
        std::optional<MemoryForGroups> few;
        if (group.node() == 1) few.emplace(enough, 2);
        group.barrier({});
        const std::string reason = failure_of(session, spec);
        if (reason.find("no shared memory") == std::string::npos) throw std::runtime_error(reason);
        const bool own = reason.find("failed: ") == std::string::npos;
        if (own != (told == reason)) throw std::runtime_error("told: " + told);
      }
      group.barrier({});
      const std::optional<CaseResult> after = session.measure(spec);
      if (!after || !after->measurement.verified) throw std::runtime_error("the next case is not measured");
    });
    EXPECT_EQ(statuses, std::vector<int>(4, 0)) << "memory for " << enough;
  }
}

}  // namespace
}  // namespace linkgauge
