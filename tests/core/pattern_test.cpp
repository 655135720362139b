// Every pattern over every transport that needs no MPI, verified; and wrong data in the last operation, caught.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/patterns.h"
#include "case_maker.h"
#include "operation/make_operation.h"
#include "traffic/lanes.h"
#include "traffic/layout.h"

namespace linkgauge {
namespace {

constexpr Pattern kBetweenRanks[] = {Pattern::kPingpong,
                                     Pattern::kUnidirectional,
                                     Pattern::kBidirectional,
                                     Pattern::kRingShift,
                                     Pattern::kOneToAll,
                                     Pattern::kAllToOne,
                                     Pattern::kAlltoall,
                                     Pattern::kAllreduce,
                                     Pattern::kAllgather,
                                     Pattern::kReduceScatter,
                                     Pattern::kBroadcast,
                                     Pattern::kReduce,
                                     Pattern::kGather,
                                     Pattern::kScatter,
                                     Pattern::kPairsPingpong,
                                     Pattern::kPairsUnidirectional,
                                     Pattern::kPairsBidirectional,
                                     Pattern::kAlltoallv,
                                     Pattern::kHalo,
                                     Pattern::kBarrier};

const Mechanism kMechanisms[] = {
    {"copy_engine", "", Initiator::kSender},
    {"copy_engine", "", Initiator::kReceiver},
    {"kernel", "push", Initiator::kSender},
    {"kernel", "pull", Initiator::kSender},
    {"staging", "", Initiator::kSender},
    {"staging", "pipelined", Initiator::kSender},
    {"staging", "pageable", Initiator::kSender},
    {"ucx", "", Initiator::kSender},
    {"ucx", "put", Initiator::kSender},
    {"ucx", "get", Initiator::kSender},
    {"ofi", "", Initiator::kSender},
    {"ofi", "put", Initiator::kSender},
    {"ofi", "get", Initiator::kSender},
};

CaseSpec case_for(const Mechanism& mechanism, Pattern pattern, int ranks, std::int64_t size) {
  CaseSpec spec = case_of(mechanism, pattern, ranks, size);
  if (spec.mechanism.transport == "staging") spec.mechanism.host_leg = "memcpy";
  return spec;
}

std::string described(const CaseSpec& spec) {
  return spec.mechanism.transport + " " + spec.mechanism.variant + " " + std::string(to_string(spec.traffic.pattern)) +
         " ranks " + std::to_string(spec.places.rank_list.size()) + " size " + std::to_string(spec.traffic.size_bytes) +
         (spec.traffic.in_place ? " in place" : "");
}

void expect_verified(const CaseSpec& spec) {
  const std::vector<VerifyResult> results = run_case(spec);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank].ok) << described(spec) << " rank " << rank << ": " << results[rank].bad_bytes
                                  << " bad bytes, first at " << results[rank].first_bad_offset << ", "
                                  << results[rank].where;
  }
}

std::vector<int> ranks_of(Pattern pattern) {
  if (traits_of(pattern).one_pair) return {1, 2};
  if (traits_of(pattern).side_by_side) return kFewRanks ? std::vector{4} : std::vector{4, 6};
  return kFewRanks ? std::vector{3} : std::vector{2, 3, 4};
}

// Sizes that leave odd ends; whole elements and blocks where the pattern needs them.
std::vector<std::int64_t> sizes_of(Pattern pattern, int ranks) {
  const std::int64_t shorter = kThreadSanitizer ? 8 : 1;  // each page is many pages of its own
  std::vector<std::int64_t> sizes = {1, 1333, 200003 / shorter};
  if (traits_of(pattern).reduces) sizes = {4, 4L * 333, 4 * (50001 / shorter)};
  if (traits_of(pattern).cuts_blocks) sizes = {4L * ranks, 4L * 333 * ranks, 4 * (20001 / shorter) * ranks};
  return kThreadSanitizer ? std::vector{sizes.back()} : sizes;
}

TEST(Ends, EachRankOfAPairHasMemoryOfOneKindWhereDataComesBack) {
  for (const Pattern pattern : kBetweenRanks) {
    CaseSpec spec = case_of("mpi", pattern, 4, 64);
    spec.places.source.kind = MemoryKind::kPageable;
    spec.places.target.kind = MemoryKind::kDevice;
    for (const int rank : {0, 1, 2, 3}) {
      const MemoryKind from = end_of(spec, 4, rank, true).kind;
      const MemoryKind into = end_of(spec, 4, rank, false).kind;
      if (traits_of(pattern).comes_back) {
        EXPECT_EQ(from, into);
        EXPECT_EQ(from, rank % 2 == 0 ? spec.places.source.kind : spec.places.target.kind);
      } else {
        EXPECT_EQ(from, spec.places.source.kind);
        EXPECT_EQ(into, spec.places.target.kind);
      }
    }
    EXPECT_EQ(end_of(spec, 1, 0, true).kind, MemoryKind::kPageable);
    EXPECT_EQ(end_of(spec, 1, 0, false).kind, MemoryKind::kDevice);
  }
}

TEST(Ends, MixedKindsArriveWholeBothWays) {
  for (const char* transport : {"copy_engine", "kernel"}) {
    for (const Pattern pattern : {Pattern::kPingpong, Pattern::kBidirectional, Pattern::kPairsPingpong}) {
      CaseSpec spec = case_of(transport, pattern, traits_of(pattern).side_by_side ? 4 : 2, 3333);
      spec.places.source.kind = MemoryKind::kPinned;
      expect_verified(spec);
      std::swap(spec.places.source.kind, spec.places.target.kind);
      expect_verified(spec);
    }
  }
}

// A worker of UCX's opens every way that this machine has, TCP's interfaces too, and fills queues of megabytes, which
// took most of these tests' time. On one node it takes these, while a test runs; nic_test.cpp leaves it its choice.
constexpr std::pair<const char*, const char*> kFewUcxWays[] = {
    {"UCX_TLS", "self,posix,cma"}, {"UCX_POSIX_FIFO_SIZE", "64"}, {"UCX_POSIX_RX_BUFS_GROW", "64"}};

class EveryMechanism : public testing::TestWithParam<Mechanism> {
 protected:
  void SetUp() override {
    for (const auto& [name, value] : kFewUcxWays) {
      if (getenv(name) != nullptr) continue;
      setenv(name, value, 1);
      set_.push_back(name);
    }
    if (const std::string reason = why_not_tested(GetParam().transport); !reason.empty()) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    for (const char* name : set_) unsetenv(name);
  }

 private:
  std::vector<const char*> set_;  // what this test set alone, in place of the user's
};

TEST_P(EveryMechanism, MovesEveryPatternRight) {
  for (const Pattern pattern : kBetweenRanks) {
    for (const int ranks : ranks_of(pattern)) {
      for (const std::int64_t size : sizes_of(pattern, ranks)) {
        expect_verified(case_for(GetParam(), pattern, ranks, size));
      }
    }
  }
}

TEST_P(EveryMechanism, DistributesAsAsked) {
  for (const auto& [pattern, ranks, distribution] : {std::tuple{Pattern::kAlltoallv, 3, "0,3,1;0,0,5;1,0,0"},
                                                     {Pattern::kAlltoallv, 4, "zipf:1.1"},
                                                     {Pattern::kAlltoallv, 4, "blocks:3"},
                                                     {Pattern::kAlltoallv, 4, "moe:8:2:9:1:3"},
                                                     {Pattern::kHalo, 4, "open"},
                                                     {Pattern::kHalo, 4, "2x2:all"},
                                                     {Pattern::kHalo, 4, "shift:3"},
                                                     {Pattern::kHalo, 2, ""},
                                                     {Pattern::kHalo, 4, "4:open"}}) {
    for (const std::int64_t size : {7, 4096}) {
      CaseSpec spec = case_for(GetParam(), pattern, ranks, size);
      spec.traffic.distribution = distribution;
      spec.traffic.window = pattern == Pattern::kHalo ? 3 : 1;
      expect_verified(spec);
    }
  }
}

TEST_P(EveryMechanism, WindowsRootsAndInPlace) {
  for (const Pattern pattern : kBetweenRanks) {
    const int ranks = ranks_of(pattern).back();
    CaseSpec spec = case_for(GetParam(), pattern, ranks, 4L * 60);
    spec.traffic.window = 5;
    spec.traffic.root = ranks - 1;
    expect_verified(spec);
    spec.traffic.in_place = true;
    if (!kThreadSanitizer && why_not_laid_out(spec, ranks).empty()) expect_verified(spec);
  }
}

TEST_P(EveryMechanism, ReducesEveryDatatypeAndOp) {
  for (const Pattern pattern : {Pattern::kAllreduce, Pattern::kReduce, Pattern::kReduceScatter}) {
    for (int datatype = 0; datatype < 12; datatype += kThreadSanitizer ? 5 : 1) {
      CaseSpec spec = case_for(GetParam(), pattern, 2, 2 * 8 * 21);
      spec.traffic.datatype = static_cast<Datatype>(datatype);
      spec.traffic.op = static_cast<ReduceOp>(datatype % 5);
      expect_verified(spec);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, EveryMechanism, testing::ValuesIn(kMechanisms));

// Each pair's time is one rank's: the starter's or the sender's; of two directions each its own.
TEST(SideBySide, EachPairHasLanesOfItsOwn) {
  using Names = std::vector<std::string>;
  struct Row {
    Pattern pattern;
    Names names;
    std::vector<int> lane_of_rank;
  };
  const Row rows[] = {{Pattern::kPairsPingpong, {"0->1", "2->3"}, {0, -1, 1, -1}},
                      {Pattern::kPairsUnidirectional, {"0->1", "2->3"}, {0, -1, 1, -1}},
                      {Pattern::kPairsBidirectional, {"0->1", "1->0", "2->3", "3->2"}, {0, 1, 2, 3}}};
  for (const Row& row : rows) {
    const CaseSpec spec = case_of("copy_engine", row.pattern, 4, 640);
    EXPECT_EQ(lanes_of(spec), row.names);
    const std::shared_ptr<DeviceRuntime> runtime = host_devices(4);
    on_operations(*runtime, spec, [&](Group& group, Operation& operation) {
      EXPECT_EQ(operation.lane(), row.lane_of_rank[static_cast<std::size_t>(group.rank())]);
    });
  }
}

// Inside one device both ways have buffers and a queue each, and one rank's time is of both.
TEST(Bidirectional, InsideOneDeviceIsTwoCopiesAtOnce) {
  for (const char* transport : {"copy_engine", "kernel"}) {
    const CaseSpec spec = case_of(transport, Pattern::kBidirectional, 1, 4099);
    EXPECT_EQ(lanes_of(spec), std::vector<std::string>{"0<->0"});
    const std::shared_ptr<DeviceRuntime> runtime = host_devices(1);
    on_operations(*runtime, spec, [&](Group&, Operation& operation) {
      operation.prepare();
      EXPECT_EQ(operation.lane(), 0);
      const auto queues = operation.queues();
      ASSERT_EQ(queues.size(), 2U);
      EXPECT_NE(queues[0].stream, queues[1].stream);
      operation.fill(5);
      EXPECT_EQ(operation.verify(5).bad_bytes, 2U * 4099U);
      operation.post();
      operation.complete();
      EXPECT_TRUE(operation.verify(5).ok);
      operation.release();
    });
  }
}

// By events the rank that queues the copies keeps the time, here each pair's receiver.
TEST(SideBySide, EventsAreOfTheEndThatQueues) {
  CaseSpec spec = case_of("copy_engine", Pattern::kPairsUnidirectional, 4, 640);
  spec.mechanism.initiator = Initiator::kReceiver;
  spec.timing.clock = ClockKind::kEvent;
  const std::shared_ptr<DeviceRuntime> runtime = host_devices(4);
  on_operations(*runtime, spec, [&](Group& group, Operation& operation) {
    operation.prepare();
    EXPECT_EQ(operation.lane(), group.rank() % 2 == 0 ? -1 : group.rank() / 2);
    operation.release();
  });
}

TEST(KernelAllreduce, OneShotAndTwoShotAreRight) {
  const std::pair<const char*, std::vector<const char*>> words[] = {
      {"one_shot", {"", "pull", "push", "pull+host_barrier", "device_barrier+pull", "resident"}},
      {"two_shot", {"pull", "push", "pull+host_barrier", "device_barrier+pull", "push+device_barrier"}}};
  for (const auto& [algorithm, variants] : words) {
    for (const char* variant : variants) {
      for (const int ranks : kFewRanks ? std::vector{3} : std::vector{2, 3, 4}) {
        for (const std::int64_t size : {4, 16, 44, 4 * 10007}) {
          if (kThreadSanitizer && size == 16) continue;
          CaseSpec spec = case_of("kernel", Pattern::kAllreduce, ranks, size);
          spec.mechanism.algorithm = algorithm;
          spec.mechanism.variant = variant;
          expect_verified(spec);
        }
      }
    }
  }
}

TEST(KernelAllreduce, OneShotThatPushesIsRightInPlace) {
  for (const Datatype datatype : {Datatype::kInt8, Datatype::kBfloat16, Datatype::kFloat64}) {
    CaseSpec spec = case_of("kernel", Pattern::kAllreduce, 3, 8 * 1007);
    spec.mechanism.algorithm = "one_shot";
    spec.mechanism.variant = "push";
    spec.traffic.datatype = datatype;
    spec.traffic.in_place = true;
    expect_verified(spec);
  }
}

TEST(KernelAllreduce, MeetingOnTheDeviceAllowsTwoShotInPlace) {
  for (const char* variant : {"pull+device_barrier", "push+device_barrier"}) {
    CaseSpec spec = case_of("kernel", Pattern::kAllreduce, 3, 4 * 10007);
    spec.mechanism.algorithm = "two_shot";
    spec.mechanism.variant = variant;
    spec.traffic.in_place = true;
    expect_verified(spec);
  }
}

std::string why_not(const CaseSpec& spec) {
  const std::shared_ptr<DeviceRuntime> runtime = host_devices(static_cast<int>(spec.places.rank_list.size()));
  std::string reason;
  on_threads(static_cast<int>(spec.places.rank_list.size()), [&](Group& group) {
    const RankContext context = context_of(*runtime, group, spec);
    const std::string found = make_transport(spec.mechanism.transport)->supports(context, spec);
    if (group.rank() == 0) reason = found;
  });
  return reason;
}

TEST(KernelAllreduce, WhatCannotMeetOnTheDeviceSaysWhy) {
  CaseSpec spec = case_of("kernel", Pattern::kAllreduce, 4, 4096);
  spec.mechanism.algorithm = "one_shot";
  spec.mechanism.variant = "device_barrier";
  EXPECT_EQ(why_not(spec), "");
  spec.traffic.in_place = true;
  EXPECT_NE(why_not(spec).find("one_shot reads the peers' operands"), std::string::npos);
  spec.mechanism.variant = "push";
  EXPECT_EQ(why_not(spec), "");
  spec.mechanism.variant = "push+device_barrier";
  EXPECT_NE(why_not(spec).find("one_shot with push has no meetings; leave out device_barrier"), std::string::npos);
  spec.mechanism.variant = "pull+resident";
  EXPECT_NE(why_not(spec).find("resident is of --algorithm one_shot with push only"), std::string::npos);
  spec.mechanism.variant = "push";
  spec.traffic.size_bytes = (1 << 20) + 4;
  EXPECT_NE(why_not(spec).find("at most 1048576 bytes, the case has 1048580; use --variant pull"), std::string::npos);
  spec.traffic.size_bytes = 4096;
  spec.mechanism.variant = "device_barrier";
  spec.mechanism.algorithm = "two_shot";
  EXPECT_EQ(why_not(spec), "");
  spec.mechanism.variant = "host_barrier";
  EXPECT_NE(why_not(spec).find("use out of place or device_barrier"), std::string::npos);
  spec.traffic.in_place = false;
  EXPECT_EQ(why_not(spec), "");
  spec.mechanism.variant = "device_barrier";
  spec.mechanism.blocks = 5;  // a host device is one core
  EXPECT_NE(why_not(spec).find("at most 1, not 5"), std::string::npos);
  spec.mechanism.blocks = 0;
  spec.places.devices = {0, 0, 1, 1};
  EXPECT_NE(why_not(spec).find("two ranks on one device"), std::string::npos);
  spec.mechanism.variant = "";
  EXPECT_EQ(why_not(spec), "");
  for (const char* word : {"pull+push", "barrier", "+", "device_barrier+host_barrier", "flag_completion"}) {
    spec.mechanism.variant = word;
    EXPECT_NE(why_not(spec).find("kernel has no variant"), std::string::npos) << word;
  }
  spec.mechanism.variant = "host_barrier";
  spec.mechanism.algorithm = "";
  EXPECT_NE(why_not(spec).find("kernel has no variant"), std::string::npos);
  for (const std::string word : {"one_shot", "two_shot"}) {  // an algorithm's word where a variant's is meant
    spec.mechanism.variant = word;
    EXPECT_EQ(why_not(spec), "kernel has no variant '" + word + "': that is an algorithm, --algorithm " + word);
  }
}

// --- wrong data ---------------------------------------------------------------------------------------------------

// Forwards to a real transport, and flips one bit of one arrived byte in the last operation of a run.
std::atomic<int> g_completions_until_flip{0};

class FlippingChannel final : public Channel {
 public:
  FlippingChannel(std::unique_ptr<Channel> inner, const Flow& flow) : inner_(std::move(inner)), flow_(flow) {}
  void put(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    inner_->put(target_offset, source_offset, bytes);
  }
  void get(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    inner_->get(target_offset, source_offset, bytes);
    place_ = target_offset + bytes - 1;
  }
  void complete(Completion completion) override {
    inner_->complete(completion);
    if (flow_.target_buffer == nullptr || place_ == ~std::size_t{0}) return;
    if (g_completions_until_flip.fetch_sub(1) == 1) *flow_.target_buffer->at(place_) ^= std::byte{1};
  }
  void consumed() override { inner_->consumed(); }
  bool completes_first() const override { return inner_->completes_first(); }

 private:
  std::unique_ptr<Channel> inner_;
  Flow flow_;
  std::size_t place_ = ~std::size_t{0};
};

class FlippingTransport final : public Transport {
 public:
  explicit FlippingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    return inner_->supports(context, spec);
  }
  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const Flows& flows) override {
    std::vector<std::unique_ptr<Channel>> channels = inner_->connect(context, spec, flows);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (channels[i] != nullptr) channels[i] = std::make_unique<FlippingChannel>(std::move(channels[i]), flows[i]);
    }
    return channels;
  }
  std::unique_ptr<Operation> collective(const RankContext&, const CaseSpec&) override { return nullptr; }
  Progress progress(const RankContext& context) override { return inner_->progress(context); }

 private:
  std::unique_ptr<Transport> inner_;
};

std::unique_ptr<Transport> flipping_transport(const CaseSpec& spec) {
  return std::make_unique<FlippingTransport>(make_transport(spec.mechanism.transport));
}

int bad_ranks(const std::vector<VerifyResult>& results) {
  int bad = 0;
  for (const VerifyResult& result : results) bad += result.ok ? 0 : 1;
  return bad;
}

TEST_P(EveryMechanism, OneWrongBitInTheLastOperationIsCaught) {
  for (const Pattern pattern : kBetweenRanks) {
    const int ranks = ranks_of(pattern).back();
    CaseSpec spec = case_for(GetParam(), pattern, ranks, 4L * 12 * 10);
    spec.traffic.datatype = Datatype::kInt32;
    // Count the arrivals of a run, then let the last of them go wrong.
    constexpr int kMany = 1'000'000;
    g_completions_until_flip = kMany;
    ASSERT_EQ(bad_ranks(run_case(spec, 1, 3, flipping_transport)), 0) << described(spec);
    const int arrivals = kMany - g_completions_until_flip;
    ASSERT_GT(arrivals, 0);
    g_completions_until_flip = arrivals;
    EXPECT_GE(bad_ranks(run_case(spec, 1, 3, flipping_transport)), 1) << described(spec);
  }
}

// An operation that is never run leaves poison, and poison is wrong in every byte.
TEST_P(EveryMechanism, WhatNeverArrivedIsCaughtInEveryByte) {
  for (const Pattern pattern : kBetweenRanks) {
    const int ranks = ranks_of(pattern).back();
    const CaseSpec spec = case_for(GetParam(), pattern, ranks, 4L * 12 * 10);
    const std::shared_ptr<DeviceRuntime> runtime = host_devices(ranks);
    on_operations(*runtime, spec, [&](Group& group, Operation& operation) {
      operation.prepare();
      operation.fill(3);
      std::size_t due = 0;
      for (const Piece& piece : layout_of(spec.traffic, ranks, group.rank()).received) due += piece.bytes;
      EXPECT_EQ(operation.verify(3).bad_bytes, due) << described(spec) << " rank " << group.rank();
      operation.release();
    });
  }
}

// --- what is not supported ----------------------------------------------------------------------------------------

std::string reason_for(const CaseSpec& spec) {
  const int ranks = static_cast<int>(spec.places.rank_list.size());
  std::string reason;
  const std::shared_ptr<DeviceRuntime> runtime = host_devices(ranks);
  on_threads(ranks, [&](Group& group) {
    const RankContext context = context_of(*runtime, group, spec);
    try {
      make_operation(*make_transport(spec.mechanism.transport), context, spec);
    } catch (const Unsupported& error) {
      if (group.rank() == 0) reason = error.what();
    }
  });
  return reason;
}

TEST(Reasons, NameTheThingAndWhatWouldBeRight) {
  EXPECT_NE(reason_for(case_of("kernel", Pattern::kAllgather, 4, 12)).find("16 bytes are the least"),
            std::string::npos);
  EXPECT_NE(reason_for(case_of("kernel", Pattern::kAllgather, 4, 40)).find("nearest size below is 32"),
            std::string::npos);
  EXPECT_NE(reason_for(case_of("kernel", Pattern::kAlltoall, 1, 40)).find("2 ranks"), std::string::npos);
  EXPECT_NE(reason_for(case_of("kernel", Pattern::kPingpong, 3, 40)).find("between 2 ranks"), std::string::npos);
  for (const int ranks : {2, 5}) {
    EXPECT_NE(reason_for(case_of("kernel", Pattern::kPairsPingpong, ranks, 40)).find("even number of ranks, 4 or more"),
              std::string::npos);
  }
  CaseSpec spec = case_of("copy_engine", Pattern::kAlltoall, 2, 40);
  spec.traffic.in_place = true;
  EXPECT_NE(reason_for(spec).find("in-place"), std::string::npos);
  spec = case_of("copy_engine", Pattern::kReduce, 2, 40);
  spec.traffic.root = 2;
  EXPECT_NE(reason_for(spec).find("root 2"), std::string::npos);
  spec = case_of("copy_engine", Pattern::kAllreduce, 3, 40);
  spec.traffic.op = ReduceOp::kAvg;
  EXPECT_NE(reason_for(spec).find("power of two"), std::string::npos);
  spec = case_of("kernel", Pattern::kPingpong, 2, 40);
  spec.mechanism.variant = "shove";
  EXPECT_NE(reason_for(spec).find("pull, push, host_barrier"), std::string::npos);
}

TEST(Reasons, AnUnknownTransportIsNamedWithThoseThereAre) {
  try {
    make_transport("pigeon");
    FAIL();
  } catch (const CallerError& error) {
    EXPECT_NE(std::string(error.what()).find("pigeon"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("copy_engine"), std::string::npos);
  }
}

// --- patterns of one device ---------------------------------------------------------------------------------------

TEST(DevicePatterns, CopiesChasesAndFloorsAreVerified) {
  struct Row {
    Pattern pattern;
    const char* transport;
    MemoryKind source;
    MemoryKind target;
  };
  const Row rows[] = {
      {Pattern::kHostToDevice, "copy_engine", MemoryKind::kPinned, MemoryKind::kDevice},
      {Pattern::kHostToDevice, "kernel", MemoryKind::kPageable, MemoryKind::kDevice},
      {Pattern::kDeviceToHost, "copy_engine", MemoryKind::kDevice, MemoryKind::kPageable},
      {Pattern::kHostDeviceBidirectional, "copy_engine", MemoryKind::kPinned, MemoryKind::kDevice},
      {Pattern::kLocalCopy, "copy_engine", MemoryKind::kDevice, MemoryKind::kDevice},
      {Pattern::kLocalCopy, "kernel", MemoryKind::kDevice, MemoryKind::kDevice},
      {Pattern::kStreamCopy, "kernel", MemoryKind::kDevice, MemoryKind::kDevice},
      {Pattern::kPointerChase, "kernel", MemoryKind::kDevice, MemoryKind::kDevice},
      {Pattern::kEmptyOp, "kernel", MemoryKind::kDevice, MemoryKind::kDevice},
      {Pattern::kEmptyOp, "copy_engine", MemoryKind::kDevice, MemoryKind::kDevice},
  };
  for (const Row& row : rows) {
    for (const int ranks : {1, 2}) {
      CaseSpec spec = case_of(row.transport, row.pattern, ranks, 66001);
      spec.places.source.kind = row.source;
      spec.places.target.kind = row.target;
      expect_verified(spec);
      const bool each_its_own = row.pattern != Pattern::kPointerChase;
      EXPECT_EQ(lanes_of(spec).size(), each_its_own ? static_cast<std::size_t>(ranks) : 1U);
    }
  }
}

TEST(DevicePatterns, ChasesThroughEveryMemoryThatADeviceReaches) {
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinned}) {
    CaseSpec spec = case_of("kernel", Pattern::kPointerChase, 1, 1 << 16);
    spec.places.source.kind = kind;
    expect_verified(spec);
    spec = case_of("kernel", Pattern::kPointerChase, 2, 1 << 16);
    spec.places.source.kind = kind;
    if (kind == MemoryKind::kDevice) {
      expect_verified(spec);
      EXPECT_EQ(lanes_of(spec), std::vector<std::string>{"0->1"});
    } else {
      EXPECT_NE(reason_for(spec).find("through device memory"), std::string::npos);
    }
  }
  EXPECT_NE(reason_for(case_of("kernel", Pattern::kPointerChase, 3, 1 << 16)).find("of one through"),
            std::string::npos);
}

TEST(DevicePatterns, ChasesInTurnShareAMillionLoads) {
  for (const int ranks : {1, 2}) {
    CaseSpec spec = case_of("kernel", Pattern::kPointerChase, ranks, 1 << 16);
    spec.mechanism.variant = "in_turn";
    expect_verified(spec);
    const std::shared_ptr<DeviceRuntime> runtime = host_devices(ranks);
    on_operations(*runtime, spec, [&](Group&, Operation& operation) { EXPECT_EQ(operation.steps(), 1'000'000); });
    spec.mechanism.variant = "pull";
    EXPECT_NE(reason_for(spec).find("its variant is in_turn"), std::string::npos);
  }
}

// As nvbandwidth's kernel of both ways does it: a way moves a sixteenth of the size, each word 16 times.
TEST(DevicePatterns, BothWaysRepeatEachWord) {
  CaseSpec spec = case_of("kernel", Pattern::kHostDeviceBidirectional, 1, 256L * 33);
  spec.mechanism.variant = "repeated";
  for (const MemoryKind kind : {MemoryKind::kPinned, MemoryKind::kPageable}) {
    spec.places.source.kind = kind;
    for (const int ranks : {1, 3}) {
      spec.places.devices.resize(static_cast<std::size_t>(ranks));
      std::iota(spec.places.devices.begin(), spec.places.devices.end(), 0);
      expect_verified(spec);
      const std::shared_ptr<DeviceRuntime> runtime = host_devices(ranks);
      on_operations(*runtime, spec, [&](Group&, Operation& operation) {
        operation.prepare();
        EXPECT_EQ(operation.queues().size(), 1U);  // one kernel moves both
        operation.release();
      });
    }
  }
  spec.traffic.size_bytes += 16;
  EXPECT_NE(reason_for(spec).find("a multiple of 256 B"), std::string::npos);
  spec.mechanism.variant = "pull";
  EXPECT_NE(reason_for(spec).find("its variant is repeated, by kernel"), std::string::npos);
  spec.mechanism.transport = "copy_engine";
  spec.mechanism.variant = "repeated";
  EXPECT_NE(reason_for(spec).find("its variant is repeated, by kernel"), std::string::npos);
}

// What is beside is moved, and verified, but only the first rank keeps time, of one queue.
TEST(DevicePatterns, OneFlowIsTimedWithOthersBesideIt) {
  for (const bool into : {true, false}) {
    for (const int ranks : {1, 3}) {
      for (const char* variant : {"", "both_ways"}) {
        CaseSpec spec = case_of("copy_engine", into ? Pattern::kHostToDeviceContended : Pattern::kDeviceToHostContended,
                                ranks, 4099);
        spec.mechanism.variant = variant;
        (into ? spec.places.source.kind : spec.places.target.kind) = MemoryKind::kPinned;
        EXPECT_NE(reason_for(spec).find("clock event"), std::string::npos);
        spec.timing.clock = ClockKind::kEvent;
        if (ranks == 1 && spec.mechanism.variant.empty()) {
          EXPECT_NE(reason_for(spec).find("nothing beside it"), std::string::npos);
          continue;
        }
        expect_verified(spec);
        EXPECT_EQ(lanes_of(spec), std::vector<std::string>{into ? "host->0" : "0->host"});
        const std::shared_ptr<DeviceRuntime> runtime = host_devices(ranks);
        on_operations(*runtime, spec, [&](Group& group, Operation& operation) {
          operation.prepare();
          EXPECT_EQ(operation.lane(), group.rank() == 0 ? 0 : -1);
          const std::vector<DeviceQueue> queues = operation.queues();
          EXPECT_EQ(queues.size(), spec.mechanism.variant.empty() ? 1U : 2U);
          EXPECT_EQ(queues.front().timed, group.rank() == 0);
          if (queues.size() == 2) {
            EXPECT_FALSE(queues.back().timed);
          }
          operation.release();
        });
        std::swap(spec.places.source.kind, spec.places.target.kind);
        EXPECT_NE(reason_for(spec).find("between pinned or pageable memory and device memory"), std::string::npos);
      }
    }
  }
}

TEST(DevicePatterns, FlagsGoBackAndForthBetweenKernels) {
  for (const int ranks : {1, 2}) {
    CaseSpec spec = case_of("kernel", Pattern::kFlagPingpong, ranks, 0);
    expect_verified(spec);
    spec.mechanism.variant = "relaxed";
    expect_verified(spec);
    if (ranks == 2) {
      spec.places.devices = {0, 0};
      expect_verified(spec);
    }
  }
  CaseSpec pushed = case_of("kernel", Pattern::kFlagPingpong, 2, 0);
  pushed.mechanism.variant = "push";
  EXPECT_NE(reason_for(pushed).find("no variant 'push'; its variant is relaxed"), std::string::npos);
  EXPECT_NE(reason_for(case_of("copy_engine", Pattern::kFlagPingpong, 2, 0)).find("between kernels"),
            std::string::npos);
  EXPECT_NE(reason_for(case_of("kernel", Pattern::kFlagPingpong, 3, 0)).find("between 2 ranks"), std::string::npos);
  CaseSpec pinned = case_of("kernel", Pattern::kFlagPingpong, 2, 0);
  pinned.places.target.kind = MemoryKind::kPinned;
  EXPECT_NE(reason_for(pinned).find("in device memory"), std::string::npos);
}

TEST(DevicePatterns, WrongMemoryKindsAreNamed) {
  EXPECT_NE(reason_for(case_of("kernel", Pattern::kHostToDevice, 1, 40)).find("pinned, pageable or managed"),
            std::string::npos);
}

}  // namespace
}  // namespace linkgauge
