// NCCL's transport on a stand-in library that moves bytes between the threads of this process: every pattern verified,
// and what becomes of each fault.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/patterns.h"
#include "case_maker.h"
#include "device/device_runtime.h"
#include "operation/make_operation.h"
#include "refused.h"
#include "stand_in_control.h"
#include "traffic/layout.h"
#include "traffic/program.h"
#include "transport/nccl/api.h"
#include "transport/nccl/config.h"
#include "with_sessions.h"

namespace linkgauge {
namespace {

const std::string kStandIns = LINKGAUGE_STAND_IN_FOLDER;
const std::string kNccl = kStandIns + "/nccl0/libnccl.so.2";
const std::string kOlderNccl = kStandIns + "/nccl1/libnccl.so.2";
const std::string kTooOldNccl = kStandIns + "/nccl2/libnccl.so.2";
const std::string kNewerNccl = kStandIns + "/nccl3/libnccl.so.2";

class Ccl : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("LINKGAUGE_STAND_IN_NCCL_VERSION");
    cache_ = std::filesystem::temp_directory_path() / ("linkgauge_ccl_test_" + std::to_string(getpid()));
    cuda_.configure("devices=4");
    nccl_.configure("");
    RuntimeRequest request;
    request.which = "cuda";
    request.kernel_cache = cache_.string();
    request.library_folders = {kStandIns + "/nvrtc12"};
    runtime_ = open_runtime(request);
  }
  void TearDown() override {
    kept_.clear();
    runtime_.reset();
    std::filesystem::remove_all(cache_);
  }

  // Runs the case on its ranks; what the others threw because a rank did is in `errors_`, by rank.
  std::vector<VerifyResult> run(const CaseSpec& spec, const std::string& library = kNccl, int operations = 3) {
    const std::size_t ranks = spec.places.rank_list.size();
    std::vector<VerifyResult> results(ranks);
    errors_.assign(ranks, "");
    on_threads(static_cast<int>(ranks), [&](Group& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      RankContext context = context_of(*runtime_, group, spec);
      context.libraries.ccl = library;
      {
        const std::lock_guard lock(mutex_);
        context.keep = &kept_[{spec.places.rank_list, group.rank()}];
      }
      try {
        CaseSpec mine = spec;
        if (!programs_.empty()) mine.traffic.program = programs_[rank];
        results[rank] = run_as_rank(context, mine, group, operations);
      } catch (const std::exception& error) {
        errors_[rank] = error.what();
        throw;
      }
    });
    return results;
  }

  void expect_verified(const CaseSpec& spec, const std::string& library = kNccl) {
    const std::vector<VerifyResult> results = run(spec, library);
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_TRUE(results[rank].ok) << to_string(spec.traffic.pattern) << " of " << results.size()
                                    << " ranks, in place " << spec.traffic.in_place << ", root " << spec.traffic.root
                                    << ", " << to_string(spec.traffic.datatype) << ": rank " << rank << ", "
                                    << results[rank].bad_bytes << " bad bytes " << results[rank].where;
    }
  }

  template <typename Exception>
  std::string message_of(const CaseSpec& spec, const std::string& library = kNccl) {
    return linkgauge::message_of<Exception>([&] { run(spec, library); });
  }
  bool some_error_has(const std::string& part) const {
    for (const std::string& error : errors_) {
      if (error.find(part) != std::string::npos) return true;
    }
    return false;
  }

  StandInControl cuda_{"libcuda.so.1"};
  StandInControl nccl_{kNccl.c_str()};
  std::filesystem::path cache_;
  std::shared_ptr<DeviceRuntime> runtime_;
  std::mutex mutex_;
  std::map<std::pair<std::vector<int>, int>, std::map<std::string, std::shared_ptr<void>>> kept_;
  std::vector<std::string> errors_;
  std::vector<std::shared_ptr<const Program>> programs_;  // of an application, by rank

  static VerifyResult run_as_rank(const RankContext& context, const CaseSpec& spec, Group& group, int operations) {
    const std::unique_ptr<Transport> transport = make_transport(spec.mechanism.transport);
    const std::unique_ptr<Operation> operation = make_operation(*transport, context, spec);
    struct Release {
      Operation& operation;
      ~Release() { operation.release(); }
    };
    const Release release{*operation};
    VerifyResult result;
    try {
      operation->prepare();
      for (int round = 0; round < 2 && result.ok; ++round) {
        const std::uint64_t seed = spec.timing.seed + static_cast<std::uint64_t>(round);
        operation->fill(seed);
        group.barrier({});
        for (int i = 0; i < (spec.traffic.in_place ? 1 : operations); ++i) operation->post();
        operation->complete();
        group.barrier({});
        result = operation->verify(seed);
        group.barrier({});
      }
    } catch (const std::exception& error) {
      group.abort_with(error.what());  // as a session does, before the operation gives its memory back
      throw;
    }
    return result;
  }
};

constexpr std::int64_t kSize = 24 * 1000;  // whole elements for each of 2, 3 and 4 ranks

CaseSpec ccl_case(Pattern pattern, int ranks) { return case_of("ccl", pattern, ranks, kSize); }

/// Whether so many ranks send each other something in one operation of the pattern.
bool moves_data(const PatternTraits& row, int ranks) {
  if (row.kind == PatternKind::kDevice || row.side_by_side || (ranks > 2 && row.one_pair)) return false;
  return row.pattern != Pattern::kBarrier && row.pattern != Pattern::kApplication;
}

TEST_F(Ccl, VerifiesEveryPattern) {
  for (int ranks : {2, 3, 4}) {
    for (const PatternTraits& row : all_patterns()) {
      const Pattern pattern = row.pattern;
      if (!moves_data(row, ranks)) continue;
      CaseSpec spec = ccl_case(pattern, ranks);
      if (pattern != Pattern::kPingpong && (traits_of(pattern).kind == PatternKind::kMessages)) spec.traffic.window = 3;
      expect_verified(spec);
      const bool rooted = pattern == Pattern::kOneToAll || pattern == Pattern::kAllToOne ||
                          pattern == Pattern::kBroadcast || pattern == Pattern::kReduce ||
                          pattern == Pattern::kGather || pattern == Pattern::kScatter;
      for (int root = 1; rooted && root < ranks; ++root) {
        spec.traffic.root = root;
        expect_verified(spec);
      }
    }
  }
}

TEST_F(Ccl, SendsThereAndBackInsideOneDevice) {
  const std::map<Pattern, int> sends = {{Pattern::kPingpong, 2}, {Pattern::kUnidirectional, 1}};
  for (const auto& [pattern, count] : sends) {
    nccl_.configure("");
    expect_verified(ccl_case(pattern, 1));
    EXPECT_EQ(nccl_.calls("ncclSend"), count * 2 * 3) << to_string(pattern);  // rounds, operations
  }
}

TEST_F(Ccl, VerifiesInPlaceFromEveryRoot) {
  for (int ranks : {2, 3, 4}) {
    for (Pattern pattern : {Pattern::kAllreduce, Pattern::kAllgather, Pattern::kReduceScatter, Pattern::kBroadcast,
                            Pattern::kReduce, Pattern::kGather, Pattern::kScatter}) {
      const bool rooted =
          pattern != Pattern::kAllreduce && pattern != Pattern::kAllgather && pattern != Pattern::kReduceScatter;
      for (int root = 0; root < (rooted ? ranks : 1); ++root) {
        CaseSpec spec = ccl_case(pattern, ranks);
        spec.traffic.in_place = true;
        spec.traffic.root = root;
        expect_verified(spec);
        if (!traits_of(pattern).reduces) {
          spec.mechanism.algorithm = "send_recv";
          expect_verified(spec);
        }
      }
    }
  }
}

TEST_F(Ccl, UsesTheLibrarysOwnCallUnlessAskedForMessages) {
  const std::map<Pattern, const char*> calls = {
      {Pattern::kAlltoall, "ncclAlltoAll"}, {Pattern::kGather, "ncclGather"}, {Pattern::kScatter, "ncclScatter"}};
  for (const auto& [pattern, call] : calls) {
    nccl_.configure("");
    CaseSpec spec = ccl_case(pattern, 3);
    expect_verified(spec);
    EXPECT_EQ(nccl_.calls(call), 3 * 2 * 3);  // ranks, rounds, operations
    EXPECT_EQ(nccl_.calls("ncclSend"), 0);
    spec.mechanism.algorithm = "send_recv";
    expect_verified(spec);
    EXPECT_EQ(nccl_.calls(call), 3 * 2 * 3);
    EXPECT_GT(nccl_.calls("ncclSend"), 0);
  }
}

TEST_F(Ccl, ReducesEveryDatatypeByEveryOp) {
  for (int datatype = 0; datatype <= static_cast<int>(Datatype::kFloat8E5m2); ++datatype) {
    for (int op = 0; op <= static_cast<int>(ReduceOp::kAvg); ++op) {
      CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
      spec.traffic.datatype = static_cast<Datatype>(datatype);
      spec.traffic.op = static_cast<ReduceOp>(op);
      if (why_not_laid_out(spec, 2).empty()) expect_verified(spec);
    }
  }
}

TEST_F(Ccl, KeepsACommunicatorForEachSetOfRanks) {
  expect_verified(ccl_case(Pattern::kAllreduce, 4));
  expect_verified(ccl_case(Pattern::kAllgather, 4));
  EXPECT_EQ(nccl_.calls("ncclGetUniqueId"), 1);
  expect_verified(ccl_case(Pattern::kAllreduce, 3));
  EXPECT_EQ(nccl_.calls("ncclGetUniqueId"), 2);
  kept_.clear();
  EXPECT_EQ(nccl_.calls("ncclCommDestroy"), 4 + 3);
}

// As a program's process group has one: what is begun by it goes one after the other, as predictions have it.
TEST_F(Ccl, AnApplicationHasACommunicatorForEachGroupOfRanks) {
  const std::vector<std::vector<int>> groups = {{0, 1}, {0, 1}, {1, 2}, {0, 1, 2}, {0, 1}};
  for (int rank = 0; rank < 3; ++rank) {
    Program program;
    for (std::size_t number = 0; number < groups.size(); ++number) {
      const std::vector<int>& ranks = groups[number];
      const Pattern pattern = number % 2 == 0 ? Pattern::kAllreduce : Pattern::kAllgather;
      program.collectives.push_back({pattern, kSize, 0, "", ranks, false});
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
        program.steps.push_back({ProgramKind::kCollective, static_cast<std::int64_t>(number)});
    }
    programs_.push_back(std::make_shared<const Program>(program));
  }
  CaseSpec spec = case_of("copy_engine", Pattern::kApplication, 3, 0);
  spec.mechanism.collectives = "ccl";
  expect_verified(spec);
  EXPECT_EQ(nccl_.calls("ncclGetUniqueId"), 3);
  EXPECT_EQ(nccl_.calls("ncclCommDestroy"), 2 + 2);  // the case's own is kept
}

// A ring, then a message back. What stands between two other steps is one group; all go by a communicator of their own.
TEST_F(Ccl, AnApplicationsMessagesAreItsSendsAndReceives) {
  constexpr int kRanks = 3;
  for (int rank = 0; rank < kRanks; ++rank) {
    Program program;
    program.source_bytes = program.target_bytes = 4 * kSize;
    const auto message = [&](ProgramKind kind, int from, int to, std::int64_t place) {
      const bool sends = kind == ProgramKind::kSend;
      ProgramFlow flow;
      flow.source = from;
      flow.target = to;
      flow.source_base = flow.target_base = static_cast<std::size_t>(place);
      flow.stride = kSize;
      program.steps.push_back({kind, static_cast<std::int64_t>(program.flows.size()), -1, kSize});
      if (!sends) program.arrivals.push_back({flow.target_base, kSize, from, flow.source_base});
      program.flows.push_back(flow);
    };
    const int next = (rank + 1) % kRanks;
    const int before = (rank + kRanks - 1) % kRanks;
    message(ProgramKind::kSend, rank, next, 0);
    message(ProgramKind::kReceive, before, rank, 0);
    program.steps.push_back({ProgramKind::kCompute, 0, -1, 1000});
    if (rank == 1) message(ProgramKind::kSend, 1, 0, 2 * kSize);
    if (rank == 0) message(ProgramKind::kReceive, 1, 0, 2 * kSize);
    program.steps.push_back({ProgramKind::kWait});
    programs_.push_back(std::make_shared<const Program>(program));
  }
  const CaseSpec spec = case_of("ccl", Pattern::kApplication, kRanks, 0);
  expect_verified(spec);
  EXPECT_EQ(nccl_.calls("ncclGroupStart"), nccl_.calls("ncclGroupEnd"));
  EXPECT_EQ(nccl_.calls("ncclSend"), nccl_.calls("ncclRecv"));
  EXPECT_EQ(nccl_.calls("ncclCommDestroy"), kRanks);
}

// Rank 1 sends back what it computes of the second message. NCCL connects them the first time: were that in the group
// of rank 0 that also sends the second, rank 0 would wait for rank 1 there, and rank 1 for the message.
TEST_F(Ccl, AGroupThatIsTheFirstToReceiveSendsAllTheSame) {
  for (int rank = 0; rank < 2; ++rank) {
    Program program;
    program.source_bytes = program.target_bytes = kSize;
    for (const int source : {0, 1}) {
      ProgramFlow flow;
      flow.source = source;
      flow.target = 1 - source;
      flow.stride = kSize;
      program.flows.push_back(flow);
    }
    program.arrivals.push_back({0, kSize, 1 - rank, 0});
    const ProgramKind forth = rank == 0 ? ProgramKind::kSend : ProgramKind::kReceive;
    const ProgramKind back = rank == 0 ? ProgramKind::kReceive : ProgramKind::kSend;
    program.steps.push_back({forth, 0, -1, kSize});
    program.steps.push_back({ProgramKind::kWait});
    program.steps.push_back({forth, 0, -1, kSize});
    if (rank == 1) program.steps.push_back({ProgramKind::kWait});
    program.steps.push_back({back, 1, -1, kSize});
    program.steps.push_back({ProgramKind::kWait});
    programs_.push_back(std::make_shared<const Program>(program));
  }
  expect_verified(case_of("ccl", Pattern::kApplication, 2, 0));
}

// The stand-in numbers a communicator's calls as streams come to them, so that two streams would mix them up.
TEST_F(Ccl, WhatAnApplicationBeginsByOneCommunicatorGoesByOneStream) {
  for (int rank = 0; rank < 2; ++rank) {
    Program program;
    for (std::int64_t number = 0; number < 6; ++number) {
      const Pattern pattern = number % 2 == 0 ? Pattern::kAllreduce : Pattern::kAllgather;
      program.collectives.push_back({pattern, kSize, 0, "", {0, 1}, true, pattern == Pattern::kAllgather});
      program.steps.push_back({ProgramKind::kCollective, number});
    }
    program.steps.push_back({ProgramKind::kWait});
    programs_.push_back(std::make_shared<const Program>(program));
  }
  expect_verified(case_of("ccl", Pattern::kApplication, 2, 0));
}

TEST_F(Ccl, AMessageOfAnApplicationThatFailsNamesTheCallAndLeavesNoGroupOpen) {
  for (int rank = 0; rank < 2; ++rank) {
    Program program;
    program.source_bytes = program.target_bytes = kSize;
    ProgramFlow flow;
    flow.target = 1;
    flow.stride = kSize;
    program.flows.push_back(flow);
    program.steps.push_back({rank == 0 ? ProgramKind::kSend : ProgramKind::kReceive, 0, -1, kSize});
    programs_.push_back(std::make_shared<const Program>(program));
  }
  nccl_.configure("fail=ncclSend:1:3");
  (void)message_of<Error>(case_of("ccl", Pattern::kApplication, 2, 0));
  EXPECT_TRUE(some_error_has("ncclSend failed with"));
  EXPECT_EQ(nccl_.calls("ncclGroupStart"), nccl_.calls("ncclGroupEnd"));
}

TEST_F(Ccl, ACaseWithSettingsHasACommunicatorOfItsOwn) {
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  expect_verified(spec);
  spec.mechanism.settings = "NCCL_CGA_CLUSTER_SIZE=0 minCTAs=8 NCCL_NET=Socket";
  expect_verified(spec);
  // A least number alone would be refused: the most is the library's own.
  EXPECT_EQ(nccl_.text("stand_in_configuration"), "cluster 0 blocks 8..64 net Socket version 22800");
  spec.mechanism.settings = "NCCL_MAX_CTAS=4 NCCL_CGA_CLUSTER_SIZE=default";
  expect_verified(spec);
  EXPECT_EQ(nccl_.text("stand_in_configuration"), "cluster -1 blocks -2147483648..4 net none version 22800");
  spec.mechanism.buffer = "symmetric";
  expect_verified(spec);
  EXPECT_EQ(nccl_.calls("ncclCommInitRankConfig"), 4) << "cases in a row with one setting share it";
  EXPECT_EQ(nccl_.count("stand_in_communicators"), 4);
  spec.mechanism.buffer.clear();
  spec.mechanism.settings.clear();
  expect_verified(spec);
  EXPECT_EQ(nccl_.count("stand_in_communicators"), 2);  // those that are kept, of the first case
  EXPECT_EQ(nccl_.calls("ncclGetUniqueId"), 3);
}

TEST_F(Ccl, ASettingThatNoCommunicatorHasIsAReason) {
  const auto reason = [&](const std::string& settings, const std::string& library = kNccl) {
    CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
    spec.mechanism.settings = settings;
    return message_of<Unsupported>(spec, library);
  };
  EXPECT_NE(reason("NCCL_NTHREADS=64").find("NCCL_NTHREADS is no setting of a communicator or call"),
            std::string::npos);
  EXPECT_NE(reason("NCCL_MIN_CTAS=few").find("NCCL_MIN_CTAS=few: expected a whole number"), std::string::npos);
  EXPECT_NE(reason("NCCL_CTA_POLICY=1", kOlderNccl).find("NCCL 2.27.0 or newer is needed"), std::string::npos);
  EXPECT_NE(reason("NCCL_MIN_CTAS=8 NCCL_MAX_CTAS=4").find("refuses a communicator of"), std::string::npos);
  setenv("NCCL_MAX_CTAS", "2", 1);
  EXPECT_NE(reason("maxCTAs=4").find("the environment's NCCL_MAX_CTAS wins"), std::string::npos);
  unsetenv("NCCL_MAX_CTAS");
  EXPECT_EQ(nccl_.count("stand_in_communicators"), 0);
}

TEST_F(Ccl, ACtaPolicyIsAVariantWithACommunicatorOfItsOwn) {
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  spec.mechanism.variant = "efficiency";
  expect_verified(spec);
  EXPECT_NE(nccl_.text("stand_in_configuration").find(" policy 1"), std::string::npos);
  spec.mechanism.variant = "zero_cta";
  EXPECT_NE(message_of<Unsupported>(spec).find("allgather and alltoall here, not allreduce"), std::string::npos);
  for (const Pattern pattern : {Pattern::kAllgather, Pattern::kAlltoall}) {
    spec.traffic.pattern = pattern;
    spec.mechanism.buffer = "";
    EXPECT_NE(message_of<Unsupported>(spec).find("--buffer symmetric"), std::string::npos);
    spec.mechanism.buffer = "symmetric";
    spec.mechanism.settings = pattern == Pattern::kAlltoall ? "NCCL_MAX_CTAS=4" : "";
    expect_verified(spec);
    EXPECT_NE(nccl_.text("stand_in_configuration").find(" policy 2"), std::string::npos);
    EXPECT_EQ(nccl_.calls("ncclCommWindowRegister"), nccl_.calls("ncclCommWindowDeregister"));
  }
  spec.mechanism.buffer = "";
  EXPECT_NE(message_of<Unsupported>(spec, kOlderNccl).find("NCCL 2.28 or newer is needed"), std::string::npos);
  EXPECT_EQ(nccl_.count("stand_in_communicators"), 2) << "that of the last settings is kept";
}

TEST_F(Ccl, AHighPriorityIsThatOfItsStream) {
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  spec.mechanism.variant = "high_priority";
  cuda_.configure("devices=4;fail=cuStreamCreateWithPriority:1:2");
  (void)message_of<Error>(spec);  // of whichever rank: the other may say first that it waits in vain
  EXPECT_TRUE(some_error_has("cuStreamCreateWithPriority"));
  cuda_.configure("devices=4");
  expect_verified(spec);
}

TEST_F(Ccl, AFailureUnderSettingsLeavesTheKeptCommunicator) {
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  expect_verified(spec);
  spec.mechanism.settings = "maxCTAs=4";
  nccl_.configure("fail=ncclAllReduce:2:3");
  (void)message_of<Error>(spec);
  EXPECT_EQ(nccl_.count("stand_in_communicators"), 2);
  nccl_.configure("");
  spec.mechanism.settings.clear();
  expect_verified(spec);
  EXPECT_EQ(nccl_.calls("ncclGetUniqueId"), 0);
}

TEST_F(Ccl, RegistersBuffersAndGivesThemBack) {
  for (bool in_place : {false, true}) {
    nccl_.configure("");
    CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
    spec.mechanism.buffer = "registered";
    spec.traffic.in_place = in_place;
    expect_verified(spec);
    EXPECT_EQ(nccl_.calls("ncclCommRegister"), in_place ? 2 : 4);
    EXPECT_EQ(nccl_.calls("ncclCommDeregister"), in_place ? 2 : 4);
  }
}

TEST_F(Ccl, MemoryOfTheLibrarysOwnIsGivenBackAndNotRegistered) {
  for (Pattern pattern : {Pattern::kAllreduce, Pattern::kBroadcast, Pattern::kAlltoall, Pattern::kRingShift}) {
    for (bool in_place : {false, true}) {
      nccl_.configure("");
      CaseSpec spec = ccl_case(pattern, 3);
      spec.mechanism.buffer = "allocated";
      spec.traffic.in_place = in_place;
      if (!why_not_laid_out(spec, 3).empty()) continue;
      expect_verified(spec);
      const int buffers = in_place || pattern == Pattern::kBroadcast ? 3 : 6;  // a broadcast has one a rank
      EXPECT_EQ(nccl_.calls("ncclMemAlloc"), buffers) << to_string(pattern);
      EXPECT_EQ(nccl_.calls("ncclMemFree"), buffers) << to_string(pattern);
      EXPECT_EQ(nccl_.calls("ncclCommRegister") + nccl_.calls("ncclCommWindowRegister"), 0);
      EXPECT_EQ(nccl_.count("stand_in_allocations"), 0);
    }
  }
}

TEST_F(Ccl, MakesSymmetricWindowsAndGivesThemBack) {
  for (Pattern pattern : {Pattern::kAllreduce, Pattern::kAllgather, Pattern::kReduceScatter, Pattern::kAlltoall}) {
    for (bool in_place : {false, true}) {
      nccl_.configure("");
      CaseSpec spec = ccl_case(pattern, 3);
      spec.mechanism.buffer = "symmetric";
      spec.traffic.in_place = in_place;
      if (!why_not_laid_out(spec, 3).empty()) continue;
      expect_verified(spec);
      EXPECT_EQ(nccl_.calls("ncclCommWindowRegister"), in_place ? 3 : 6);
      EXPECT_EQ(nccl_.calls("ncclCommWindowDeregister"), in_place ? 3 : 6);
      EXPECT_EQ(nccl_.calls("ncclMemAlloc"), in_place ? 3 : 6);
      EXPECT_EQ(nccl_.count("stand_in_allocations"), 0);
    }
  }
}

CaseSpec own_kernels(const std::string& algorithm, const std::string& variant, int ranks) {
  CaseSpec spec = ccl_case(Pattern::kAllreduce, ranks);
  spec.mechanism.algorithm = algorithm;
  spec.mechanism.variant = variant;
  return spec;
}

TEST_F(Ccl, OurKernelsReduceOverItsPointersAndGiveTheWindowsBack) {
  StandInControl newer{kNewerNccl.c_str()};
  const std::pair<const char*, std::vector<const char*>> words[] = {
      {"one_shot", {"device", "device+pull", "device+push+resident", "device+device_barrier"}},
      {"two_shot", {"device", "device+pull", "device+push+host_barrier"}}};
  for (const auto& [algorithm, variants] : words) {
    for (const char* variant : variants) {
      for (const int ranks : {2, 3}) {
        newer.configure("");
        expect_verified(own_kernels(algorithm, variant, ranks), kNewerNccl);
        EXPECT_EQ(newer.calls("ncclAllReduce"), 0);
        EXPECT_GE(newer.calls("ncclGetPeerDevicePointer"), ranks * (ranks - 1)) << algorithm << " " << variant;
        EXPECT_EQ(newer.calls("ncclCommWindowRegister"), newer.calls("ncclCommWindowDeregister"));
        EXPECT_EQ(newer.count("stand_in_allocations"), 0);
      }
    }
  }
}

TEST_F(Ccl, APointerThatIsNotGivenIsTheCasesAloneAndItsWindowsAreGivenBack) {
  StandInControl newer{kNewerNccl.c_str()};
  newer.configure("fail=ncclGetPeerDevicePointer:3:3");
  EXPECT_NE(
      message_of<Error>(own_kernels("two_shot", "device", 3), kNewerNccl)  // its own, or that of who waited for it
          .find("ncclGetPeerDevicePointer failed with ncclInternalError (3)"),
      std::string::npos);
  EXPECT_EQ(newer.count("stand_in_allocations"), 0);
  newer.configure("");
  expect_verified(own_kernels("two_shot", "device", 3), kNewerNccl);
}

TEST_F(Ccl, WhatOurKernelsOverItsPointersCannotSaysWhy) {
  const auto reason = [&](const CaseSpec& spec, const std::string& library) {
    std::string found;
    on_threads(2, [&](Group& group) {
      RankContext context = context_of(*runtime_, group, spec);
      context.libraries.ccl = library;
      const std::string mine = make_transport("ccl")->supports(context, spec);
      if (group.rank() == 0) found = mine;
    });
    return found;
  };
  EXPECT_EQ(reason(own_kernels("one_shot", "device", 2), kNewerNccl), "");
  EXPECT_EQ(reason(own_kernels("one_shot", "device", 2), kNccl),
            "NCCL 2.28.9 gives no pointers to other ranks' memory: NCCL 2.29 or newer is needed");
  EXPECT_NE(reason(own_kernels("", "device", 2), kNewerNccl).find("--algorithm one_shot or two_shot"),
            std::string::npos);
  EXPECT_NE(reason(own_kernels("one_shot", "device+pull+push", 2), kNewerNccl).find("'device+pull+push'"),
            std::string::npos);
  EXPECT_NE(reason(own_kernels("one_shot", "devices", 2), kNewerNccl)
                .find("graph, high_priority, device, efficiency and zero_cta"),
            std::string::npos);
  CaseSpec spec = own_kernels("one_shot", "device", 2);
  spec.mechanism.buffer = "plain";
  EXPECT_NE(reason(spec, kNewerNccl).find("leave --buffer out"), std::string::npos);
}

CaseSpec barrier_of_kernels(int ranks) {
  CaseSpec spec = ccl_case(Pattern::kBarrier, ranks);
  spec.mechanism.variant = "device";
  return spec;
}

TEST_F(Ccl, KernelsMeetByItsBarriersAndGiveThemBack) {
  StandInControl newer{kNewerNccl.c_str()};
  for (const auto& [algorithm, variant] : {std::pair{"one_shot", "device+lsa_barrier"},
                                           {"one_shot", "device+pull+lsa_barrier"},
                                           {"two_shot", "device+lsa_barrier"},
                                           {"two_shot", "device+lsa_barrier+push"}}) {
    for (const int ranks : {2, 3}) {
      newer.configure("");
      expect_verified(own_kernels(algorithm, variant, ranks), kNewerNccl);
      EXPECT_EQ(newer.calls("ncclDevCommCreate"), ranks) << algorithm << " " << variant;
      EXPECT_EQ(newer.count("stand_in_device_communicators"), 0);
      EXPECT_EQ(newer.count("stand_in_allocations"), 0);
    }
  }
  newer.configure("");
  expect_verified(barrier_of_kernels(3), kNewerNccl);
  EXPECT_EQ(newer.calls("ncclDevCommCreate"), 3);
  EXPECT_EQ(newer.count("stand_in_device_communicators"), 0);
}

TEST_F(Ccl, ABarrierForKernelsThatIsNotMadeIsTheCasesAlone) {
  StandInControl newer{kNewerNccl.c_str()};
  newer.configure("fail=ncclDevCommCreate:2:3");
  const std::string said = message_of<Error>(barrier_of_kernels(2), kNewerNccl);  // its own, or who waited for it
  EXPECT_NE(said.find("ncclDevCommCreate failed with ncclInternalError (3)"), std::string::npos) << said;
  newer.configure("");
  expect_verified(barrier_of_kernels(2), kNewerNccl);
  EXPECT_EQ(newer.count("stand_in_device_communicators"), 0);
}

TEST_F(Ccl, WhereKernelsHaveNoBarrierOfItsTheReasonIsSaid) {
  EXPECT_NE(message_of<Unsupported>(barrier_of_kernels(2)).find("NCCL 2.29 or newer is needed"), std::string::npos);
  CaseSpec spec = barrier_of_kernels(2);
  spec.mechanism.variant = "device+pull";
  EXPECT_NE(message_of<Unsupported>(spec, kNewerNccl).find("takes no further word"), std::string::npos);
  spec.mechanism.variant.clear();
  EXPECT_NE(message_of<Unsupported>(spec, kNewerNccl).find("kernels have one: --variant device"), std::string::npos);
  setenv("LINKGAUGE_STAND_IN_NCCL_DEVICE", "0", 1);
  EXPECT_NE(message_of<Unsupported>(barrier_of_kernels(2), kNewerNccl).find("has nothing for kernels here"),
            std::string::npos);
  unsetenv("LINKGAUGE_STAND_IN_NCCL_DEVICE");
}

TEST_F(Ccl, AnAlgorithmIsChosenByTheCallFrom232On) {
  StandInControl newer{kNewerNccl.c_str()};
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  spec.mechanism.settings = "NCCL_ALGO=Ring NCCL_PROTO=LL,Simple";
  expect_verified(spec, kNewerNccl);
  EXPECT_EQ(newer.text("stand_in_selection"), "RING_LL,RING_SIMPLE");
  EXPECT_EQ(newer.calls("ncclCommInitRankConfig"), 0) << "the kept communicator does";
  spec.mechanism.settings = "algSelection=RING_LL128 NCCL_MAX_CTAS=4";
  expect_verified(spec, kNewerNccl);
  EXPECT_EQ(newer.text("stand_in_selection"), "RING_LL128");
  EXPECT_EQ(newer.calls("ncclCommInitRankConfig"), 2);
  const auto reason = [&](const std::string& settings, const std::string& library, Pattern pattern) {
    CaseSpec refused = ccl_case(pattern, 2);
    refused.mechanism.settings = settings;
    return message_of<Unsupported>(refused, library);
  };
  EXPECT_NE(reason("NCCL_ALGO=Tree", kNewerNccl, Pattern::kAllreduce).find("has no algorithm of NCCL_ALGO=Tree"),
            std::string::npos);
  EXPECT_NE(reason("NCCL_ALGO=Ring", kNccl, Pattern::kAllreduce).find("of a call: NCCL 2.32.0 or newer is needed"),
            std::string::npos);
  EXPECT_NE(reason("NCCL_ALGO=Ring", kNewerNccl, Pattern::kUnidirectional).find("is sends and receives here"),
            std::string::npos);
  EXPECT_NE(reason("NCCL_ALGO=Ring algSelection=RING_LL", kNewerNccl, Pattern::kAllreduce).find("leave one out"),
            std::string::npos);
  for (const Pattern pattern : {Pattern::kReduce, Pattern::kBroadcast, Pattern::kAllgather, Pattern::kReduceScatter,
                                Pattern::kAlltoall, Pattern::kGather, Pattern::kScatter}) {
    spec = ccl_case(pattern, 3);
    spec.mechanism.settings = "NCCL_PROTO=Simple";
    expect_verified(spec, kNewerNccl);
  }
}

TEST(CclConfig, NamesOfAlgorithmsAndProtocolsAreOfACall) {
  EXPECT_EQ(ccl::selection_of("", "LL128"), "TREE_LL128,RING_LL128");
  EXPECT_EQ(ccl::selection_of("NVLS,ring", ""), "RING_LL,RING_LL128,RING_SIMPLE,NVLS_SIMPLE");
  EXPECT_EQ(ccl::selection_of("PAT", "default"), "PAT_SIMPLE");
  EXPECT_THROW((void)ccl::selection_of("PAT", "LL"), Unsupported);
  EXPECT_THROW((void)ccl::selection_of("allreduce:tree", ""), Unsupported);
  EXPECT_THROW((void)ccl::selection_of("^ring", ""), Unsupported);
}

TEST_F(Ccl, AWindowThatIsNotMadeIsAReasonToSkip) {
  setenv("LINKGAUGE_STAND_IN_NCCL_WINDOWS", "0", 1);
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  spec.mechanism.buffer = "symmetric";
  EXPECT_NE(message_of<Unsupported>(spec).find("made no window"), std::string::npos);
  unsetenv("LINKGAUGE_STAND_IN_NCCL_WINDOWS");
  EXPECT_EQ(nccl_.count("stand_in_allocations"), 0);
  kept_.clear();
  expect_verified(spec);
}

TEST_F(Ccl, ReplaysAGraphOfEveryPattern) {
  expect_verified(ccl_case(Pattern::kAllreduce, 4));  // every device has its kernels' module from here on
  for (int ranks : {2, 3}) {
    for (const PatternTraits& row : all_patterns()) {
      const Pattern pattern = row.pattern;
      if (!moves_data(row, ranks)) continue;
      const int live = cuda_.live();
      cuda_.configure("devices=4");
      CaseSpec spec = ccl_case(pattern, ranks);
      spec.mechanism.variant = "graph";
      if (pattern == Pattern::kAllreduce) spec.mechanism.buffer = ranks == 2 ? "registered" : "symmetric";
      expect_verified(spec);
      EXPECT_EQ(cuda_.calls("cuGraphLaunch"), ranks * 2 * 3) << to_string(pattern);  // ranks, rounds, operations
      EXPECT_EQ(cuda_.calls("cuGraphExecDestroy"), ranks);
      EXPECT_EQ(cuda_.live(), live) << to_string(pattern);
    }
  }
  // The library was asked once before the capture and once in it, not for each operation.
  nccl_.configure("");
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  spec.mechanism.variant = "graph";
  expect_verified(spec);
  EXPECT_EQ(nccl_.calls("ncclAllReduce"), 2 * 2);
}

TEST_F(Ccl, ACaptureThatFailsNamesTheCall) {
  expect_verified(ccl_case(Pattern::kAllreduce, 2));  // both devices have their kernels' module from here on
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  spec.mechanism.variant = "graph";
  for (const char* call :
       {"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"}) {
    const int live = cuda_.live();
    cuda_.configure(std::string("devices=4;fail=") + call + ":1:1");
    (void)message_of<Error>(spec);
    EXPECT_TRUE(some_error_has(std::string(call) + " failed with CUDA_ERROR_INVALID_VALUE (1)")) << call;
    EXPECT_EQ(cuda_.live(), live) << call;
    cuda_.configure("devices=4");
    kept_.clear();
    expect_verified(spec);
  }
  nccl_.configure("fail=ncclAllReduce:3:3");  // within the capture
  (void)message_of<Error>(spec);
  EXPECT_TRUE(some_error_has("ncclAllReduce failed with ncclInternalError (3)"));
}

// --- faults ------------------------------------------------------------------------------------------------------

TEST_F(Ccl, AFailedCallNamesItselfAndTheOthersGoOn) {
  nccl_.configure("fail=ncclAllReduce:5:3");
  (void)message_of<Error>(ccl_case(Pattern::kAllreduce, 3));
  EXPECT_TRUE(some_error_has("ncclAllReduce failed with ncclInternalError (3)"));
  EXPECT_TRUE(some_error_has("internal error"));
  EXPECT_EQ(nccl_.calls("ncclCommAbort"), 3);  // also where the others' kernels would wait for ever
  // The next case of these ranks begins anew.
  nccl_.configure("");
  expect_verified(ccl_case(Pattern::kAllreduce, 3));
  EXPECT_EQ(nccl_.calls("ncclGetUniqueId"), 1);
}

TEST_F(Ccl, EveryCallsFaultIsReported) {
  struct Fault {
    const char* call;
    Pattern pattern;
    const char* buffer;
  };
  for (const Fault& fault : {Fault{"ncclGroupStart", Pattern::kRingShift, ""},
                             {"ncclGroupEnd", Pattern::kRingShift, ""},
                             {"ncclSend", Pattern::kUnidirectional, ""},
                             {"ncclRecv", Pattern::kPingpong, ""},
                             {"ncclReduce", Pattern::kReduce, ""},
                             {"ncclBroadcast", Pattern::kBroadcast, ""},
                             {"ncclAllGather", Pattern::kAllgather, ""},
                             {"ncclReduceScatter", Pattern::kReduceScatter, ""},
                             {"ncclAlltoAll", Pattern::kAlltoall, ""},
                             {"ncclGather", Pattern::kGather, ""},
                             {"ncclScatter", Pattern::kScatter, ""},
                             {"ncclCommInitRank", Pattern::kAllreduce, ""},
                             {"ncclCommGetAsyncError", Pattern::kAllreduce, ""},
                             {"ncclMemAlloc", Pattern::kAllreduce, "allocated"},
                             {"ncclCommRegister", Pattern::kAllreduce, "registered"}}) {
    kept_.clear();
    nccl_.configure(std::string("fail=") + fault.call + ":2:2");
    CaseSpec spec = ccl_case(fault.pattern, 2);
    spec.mechanism.buffer = fault.buffer;
    (void)message_of<Error>(spec);
    EXPECT_TRUE(some_error_has(std::string(fault.call) + " failed with ncclSystemError (2)")) << fault.call;
  }
}

// In the thread of the rank that failed, what is called next must not be taken for a part of the group it had begun.
TEST_F(Ccl, AFailedSendLeavesNoGroupOpen) {
  CaseSpec failing = ccl_case(Pattern::kAlltoall, 2);
  failing.mechanism.algorithm = "send_recv";
  const CaseSpec next = ccl_case(Pattern::kAllreduce, 2);
  nccl_.configure("fail=ncclSend:1:3");
  const auto before = make_thread_groups(2);
  const auto after = make_thread_groups(2);
  std::vector<VerifyResult> results(2);
  on_threads(2, [&](Group& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    std::map<std::string, std::shared_ptr<void>> kept;
    const auto run_here = [&](const CaseSpec& spec, Group& group) {
      RankContext context = context_of(*runtime_, group, spec);
      context.libraries.ccl = kNccl;
      context.keep = &kept;
      return run_as_rank(context, spec, group, 2);
    };
    EXPECT_THROW(run_here(failing, *before[rank]), Error);
    results[rank] = run_here(next, *after[rank]);
  });
  EXPECT_TRUE(results[0].ok && results[1].ok);
}

TEST_F(Ccl, ANewIdThatCannotBeHadSkipsTheCase) {
  nccl_.configure("fail=ncclGetUniqueId:1:2");
  const std::string message = message_of<Unsupported>(ccl_case(Pattern::kAllreduce, 2));
  EXPECT_NE(message.find("ncclGetUniqueId: unhandled system error"), std::string::npos) << message;
}

TEST_F(Ccl, ALibraryThatIsTooOldNamesWhatItLacks) {
  const std::string message = message_of<Unsupported>(ccl_case(Pattern::kAllreduce, 2), kTooOldNccl);
  EXPECT_NE(message.find("is too old: it lacks ncclSend, ncclRecv"), std::string::npos) << message;
  EXPECT_NE(message.find(kTooOldNccl), std::string::npos) << message;
}

TEST_F(Ccl, AnOlderLibraryDoesWithMessages) {
  EXPECT_EQ(ccl::Library::load(ccl::Product::kNccl, kOlderNccl, {}).version(), "2.18.5");
  for (Pattern pattern : {Pattern::kAlltoall, Pattern::kGather, Pattern::kScatter}) {
    expect_verified(ccl_case(pattern, 3), kOlderNccl);
  }
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  spec.mechanism.buffer = "registered";
  EXPECT_NE(message_of<Unsupported>(spec, kOlderNccl).find("cannot register buffers: NCCL 2.19"), std::string::npos);
  spec.mechanism.buffer = "allocated";
  EXPECT_NE(message_of<Unsupported>(spec, kOlderNccl).find("memory of its own to give: NCCL 2.19"), std::string::npos);
  spec.mechanism.buffer = "";
  spec.traffic.datatype = Datatype::kFloat8E4m3;
  EXPECT_NE(message_of<Unsupported>(spec, kOlderNccl).find("2.24 or newer"), std::string::npos);
}

TEST_F(Ccl, WhatItCannotDoIsSkippedWithTheReason) {
  CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
  EXPECT_NE(message_of<Unsupported>(spec, "/nowhere/libnccl.so.2").find("NCCL was not found"), std::string::npos);
  spec.places.devices = {0, 0};
  EXPECT_NE(message_of<Unsupported>(spec).find("two ranks on one device"), std::string::npos);
  spec = ccl_case(Pattern::kAllreduce, 2);
  spec.places.source.kind = MemoryKind::kPinned;
  EXPECT_NE(message_of<Unsupported>(spec).find("device memory only"), std::string::npos);
  spec = ccl_case(Pattern::kAllreduce, 2);
  spec.mechanism.buffer = "odd";
  EXPECT_NE(message_of<Unsupported>(spec).find("'odd'"), std::string::npos);
}

TEST_F(Ccl, Fp8IsReducedFromSm90On) {
  for (const int architecture : {80, 90}) {
    runtime_.reset();
    cuda_.configure("devices=4;sm=" + std::to_string(architecture));
    RuntimeRequest request;
    request.which = "cuda";
    request.kernel_cache = cache_.string();
    request.library_folders = {kStandIns + "/nvrtc12"};
    runtime_ = open_runtime(request);
    for (const Datatype datatype : {Datatype::kFloat8E4m3, Datatype::kFloat8E5m2}) {
      CaseSpec spec = ccl_case(Pattern::kAllreduce, 2);
      spec.traffic.datatype = datatype;
      if (architecture == 90) {
        expect_verified(spec);
      } else {
        EXPECT_NE(message_of<Unsupported>(spec).find("from sm_90 on: device 0 is sm_80"), std::string::npos);
      }
      spec.traffic.pattern = Pattern::kAllgather;  // nothing is reckoned with
      expect_verified(spec);
    }
    kept_.clear();
  }
}

TEST_F(Ccl, VersionsAreReadAsTheLibraryWritesThem) {
  EXPECT_EQ(ccl::version_text(22809), "2.28.9");
  EXPECT_EQ(ccl::version_text(2708), "2.7.8");
  EXPECT_EQ(ccl::version_text(21003), "2.10.3");
}

// Ranks that are threads have no communicators of MPI; those of NCCL, which take device memory, are as few.
TEST_F(Ccl, ASessionOfThreadsKeepsSoManyCommunicators) {
  constexpr int kCasesKept = 256;
  with_sessions(
      runtime_, 3,
      [&](Session& session, Group& group) {
        CaseSpec spec = case_of("ccl", Pattern::kAllreduce, 0, kSize);
        spec.places.rank_list = {1, 0};
        spec.places.devices = {1, 0};
        spec.timing.stop.kind = StopRuleKind::kCount;
        spec.timing.stop.samples = 1;
        EXPECT_EQ(session.measure(spec).has_value(), group.rank() < 2);
        // Each is a case of its own, which has no way to be measured: copy engines have no settings.
        CaseSpec other = case_of("copy_engine", Pattern::kAllgather, 3, kSize);
        for (int number = 0; number < kCasesKept; ++number) {
          group.barrier({});
          EXPECT_EQ(nccl_.calls("ncclCommDestroy"), 0) << number;
          group.barrier({});
          other.mechanism.settings = "A=" + std::to_string(number);
          EXPECT_THROW(session.measure(other), Unsupported);
        }
        group.barrier({});
        EXPECT_EQ(nccl_.calls("ncclCommDestroy"), 2) << "of the longest unused, by its two ranks";
        EXPECT_EQ(session.measure(spec).has_value(), group.rank() < 2);
      },
      {}, kNccl);
}

}  // namespace
}  // namespace linkgauge
