// The host's cores on memory of a NUMA node: every way of work on odd sizes, and nodes that are not there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/errors.h"
#include "case_maker.h"
#include "device/host_cpu.h"
#include "group/agreement.h"

namespace linkgauge {
namespace {

CaseSpec stream_case(const std::string& work, std::int64_t size) {
  CaseSpec spec = case_of("kernel", Pattern::kHostStream, 1, size);
  spec.mechanism.variant = work;
  return spec;
}

std::string refusal(const CaseSpec& spec) {
  return what_lacks([&] { (void)run_case(spec); });
}

TEST(CpuStream, EveryWorkIsVerifiedOnOddSizes) {
  for (const char* work : {"", "copy", "read", "write", "triad"}) {
    for (const std::int64_t size : {1, 7, 63, 64, 65, 4097, 1'000'003}) {
      for (const int threads : {0, 1, 3}) {
        CaseSpec spec = stream_case(work, size);
        spec.mechanism.blocks = threads;
        const VerifyResult result = run_case(spec).front();
        EXPECT_TRUE(result.ok) << work << " of " << size << " by " << threads << ": " << result.where;
      }
    }
  }
}

// Without an operation nothing arrives: what was there before must not pass for the work's result.
TEST(CpuStream, WhatWasNotDoneIsCaught) {
  for (const char* work : {"copy", "read", "write", "triad"}) {
    EXPECT_FALSE(run_case(stream_case(work, 100'003), 1, 0).front().ok) << work;
  }
}

// By the kernel's word for each thread that works.
std::string states_of_threads() {
  std::string states;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string text;
    std::ifstream file(task.path() / "stat");
    std::getline(file, text);
    const std::size_t name = text.find("(lg-cpu) ");
    if (name != std::string::npos) states += text[name + 9];
  }
  return states;
}

// What it takes to wake a thread is not the memory's time.
TEST(CpuStream, ThreadsAreAwakeBeforeTheClockRuns) {
  CaseSpec spec = stream_case("copy", 1 << 20);
  spec.mechanism.blocks = 2;
  const auto runtime = host_devices(1);
  on_operations(*runtime, spec, [&](Group&, Operation& operation) {
    operation.prepare();
    operation.fill(1);
    for (int i = 0; i < 3; ++i) {
      while (states_of_threads().find('R') != std::string::npos) std::this_thread::yield();
      operation.put_back();
      const std::string states = states_of_threads();
      EXPECT_FALSE(states.empty());
      EXPECT_EQ(states, std::string(states.size(), 'R'));
      operation.post();
      operation.complete();
    }
    EXPECT_TRUE(operation.verify(1).ok);
    operation.release();
  });
}

TEST(CpuStream, EveryNodeWithMemoryIsReached) {
  for (const int node : numa_nodes()) {
    CaseSpec spec = stream_case("copy", 1 << 20);
    spec.places.source.options.numa_node = spec.places.target.options.numa_node = node;
    EXPECT_EQ(refusal(spec), "") << node;
  }
}

TEST(CpuStream, StatedCoresMoveTheBytes) {
  for (const int core : usable_cores()) {
    CaseSpec spec = stream_case("triad", 1 << 20);
    spec.mechanism.cpu_cores = std::to_string(core);
    EXPECT_TRUE(run_case(spec).front().ok) << core;
  }
  CaseSpec absent = stream_case("copy", 4096);
  absent.mechanism.cpu_cores = "0,9000";
  EXPECT_NE(refusal(absent).find("not all of the cores 0,9000 may be used here; those that may: "), std::string::npos);
  CaseSpec elsewhere = case_of("kernel", Pattern::kLocalCopy, 1, 4096);
  elsewhere.mechanism.cpu_cores = "0";
  EXPECT_NE(refusal(elsewhere).find("cpu_cores is of host_stream"), std::string::npos);
}

TEST(CpuStream, NodesThatAreNotThereAreNamed) {
  CaseSpec spec = stream_case("copy", 4096);
  spec.mechanism.cpu_node = 900;
  EXPECT_NE(refusal(spec).find("no core of NUMA node 900"), std::string::npos);
  spec.mechanism.cpu_node = -1;
  spec.places.source.options.numa_node = 901;
  EXPECT_NE(refusal(spec).find("no memory on NUMA node 901"), std::string::npos);
  EXPECT_NE(refusal(stream_case("scale", 4096)).find("copy, read, write and triad"), std::string::npos);
  CaseSpec gated = stream_case("copy", 4096);
  gated.timing.cadence = Cadence::kGated;
  EXPECT_NE(refusal(gated).find("clock host"), std::string::npos);
  CaseSpec elsewhere = case_of("kernel", Pattern::kLocalCopy, 1, 4096);
  elsewhere.mechanism.cpu_node = 0;
  EXPECT_NE(refusal(elsewhere).find("is of host_stream"), std::string::npos);
}

TEST(StreamCopy, ReadsAndWritesMemoryOfAnotherDevice) {
  for (const auto& [source, target] : {std::pair{1, -1}, std::pair{-1, 1}, std::pair{1, 1}}) {
    CaseSpec spec = case_of("kernel", Pattern::kStreamCopy, 2, 50'021);
    spec.places.source_device = source;
    spec.places.target_device = target;
    for (const VerifyResult& result : run_case(spec)) EXPECT_TRUE(result.ok) << source << " " << target;
  }
}

TEST(HostDevices, HaveNoManagedMemoryWhateverItsUse) {
  CaseSpec spec = case_of("kernel", Pattern::kHostToDevice, 1, 4096);
  spec.places.source.kind = MemoryKind::kManaged;
  for (const ManagedUse use : {ManagedUse::kDefault, ManagedUse::kPrefetch, ManagedUse::kZeroCopy}) {
    spec.mechanism.managed = use;
    EXPECT_NE(refusal(spec).find("host devices have no managed memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace linkgauge
