// What a rank's operation takes of a mechanism that gives memory of its own is what was said that it would.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/patterns.h"
#include "case_maker.h"
#include "operation/make_operation.h"
#include "traffic/layout.h"
#include "traffic/program.h"

namespace linkgauge {
namespace {

// The copy engine, which keeps what it was asked for.
class Counting final : public Transport {
 public:
  std::string_view name() const override { return real_->name(); }
  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    return real_->supports(context, spec);
  }
  Buffer make_buffer(const RankContext& context, const CaseSpec& spec, MemoryKind kind, std::size_t bytes,
                     const AllocateOptions& options) const override {
    asked.push_back(bytes);
    return Transport::make_buffer(context, spec, kind, bytes, options);
  }
  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const Flows& flows) override {
    return real_->connect(context, spec, flows);
  }
  std::unique_ptr<Operation> collective(const RankContext&, const CaseSpec&) override { return nullptr; }
  Progress progress(const RankContext& context) override { return real_->progress(context); }

  mutable std::vector<std::size_t> asked;

 private:
  std::unique_ptr<Transport> real_ = make_transport("copy_engine");
};

std::vector<std::size_t> sorted_without_none(std::vector<std::size_t> sizes) {
  std::erase(sizes, 0);
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

void expect_as_said(const CaseSpec& spec) {
  const int ranks = static_cast<int>(spec.places.rank_list.size());
  const std::shared_ptr<DeviceRuntime> runtime = host_devices(ranks);
  on_threads(ranks, [&](Group& group) {
    Counting transport;
    const std::unique_ptr<Operation> operation = make_operation(transport, context_of(*runtime, group, spec), spec);
    operation->prepare();
    operation->release();
    EXPECT_EQ(sorted_without_none(transport.asked), sorted_without_none(lent_sizes(spec, ranks, group.rank())))
        << to_string(spec.traffic.pattern) << " rank " << group.rank() << " of " << ranks
        << (spec.traffic.in_place ? " in place" : "");
  });
}

TEST(LentSizes, AreWhatEachRankTakes) {
  for (const Pattern pattern :
       {Pattern::kPingpong, Pattern::kBidirectional, Pattern::kRingShift, Pattern::kOneToAll, Pattern::kAlltoall,
        Pattern::kAllreduce, Pattern::kAllgather, Pattern::kReduceScatter, Pattern::kBroadcast, Pattern::kReduce,
        Pattern::kGather, Pattern::kScatter, Pattern::kAlltoallv, Pattern::kHalo, Pattern::kBarrier}) {
    CaseSpec spec = case_of("copy_engine", pattern, traits_of(pattern).one_pair ? 2 : 4, 4 * 4 * 25);
    spec.traffic.root = traits_of(pattern).one_pair ? 0 : 2;
    expect_as_said(spec);
    spec.traffic.in_place = true;
    if (why_not_laid_out(spec, static_cast<int>(spec.places.rank_list.size())).empty()) expect_as_said(spec);
  }
}

TEST(LentSizes, AreNoneOfWhatCannotBeLaidOut) {
  EXPECT_TRUE(lent_sizes(case_of("copy_engine", Pattern::kAllreduce, 3, 5), 3, 0).empty());
  EXPECT_TRUE(lent_sizes(case_of("copy_engine", Pattern::kLocalCopy, 1, 64), 1, 0).empty());
}

TEST(LentSizes, OfAnApplicationAreItsMessages) {
  CaseSpec spec = case_of("copy_engine", Pattern::kApplication, 2, 0);
  Program program;
  program.source_bytes = 96;
  program.target_bytes = 40;
  spec.traffic.program = std::make_shared<const Program>(program);
  EXPECT_EQ(sorted_without_none(lent_sizes(spec, 2, 1)), (std::vector<std::size_t>{40, 96}));
}

}  // namespace
}  // namespace linkgauge
