// The SYCL runtime over a stand-in for DPCTL's library with two GPUs, and over an installed one where
// LINKGAUGE_TEST_SYCL names its folder (PREFIX/lib/python3.x/site-packages/dpctl): there on whatever devices SYCL
// shows.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "case_maker.h"
#include "device/device_runtime.h"
#include "measure/clock.h"
#include "stand_in_control.h"
#include "with_sessions.h"

namespace linkgauge {
namespace {

const std::string kStandInFolder = std::string(LINKGAUGE_STAND_IN_FOLDER) + "/sycl";

std::shared_ptr<DeviceRuntime> open_sycl(const std::string& folder, const std::vector<int>& devices = {},
                                         bool peer_access = true) {
  RuntimeRequest request;
  request.which = "sycl";
  request.devices = devices;
  request.library_folders = {folder};
  request.peer_access = peer_access;
  return open_runtime(request);
}

std::vector<unsigned char> numbered(std::size_t bytes, unsigned first) {
  std::vector<unsigned char> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(first + i * 7 + i / 251);
  return data;
}

CaseSpec short_case(const char* transport, Pattern pattern, int ranks, std::int64_t bytes) {
  CaseSpec spec = case_of(transport, pattern, ranks, bytes);
  spec.timing.stop.kind = StopRuleKind::kCount;
  spec.timing.stop.samples = 5;
  return spec;
}

class SyclRuntime : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string folder = kStandInFolder;
    if (std::string(GetParam()) == "installed") {
      const char* named = std::getenv("LINKGAUGE_TEST_SYCL");
      if (named == nullptr) GTEST_SKIP() << "LINKGAUGE_TEST_SYCL names no folder of DPCTL's library";
      folder = named;
    }
    runtime_ = open_sycl(folder);
    runtime_->bind_thread(0);
  }
  void put(const Buffer& buffer, const std::vector<unsigned char>& data) {
    runtime_->copy_now(buffer.data(), buffer.copy_device(), data.data(), -1, data.size());
  }
  std::vector<unsigned char> held(const Buffer& buffer) {
    std::vector<unsigned char> data(buffer.size());
    runtime_->copy_now(data.data(), -1, buffer.data(), buffer.copy_device(), data.size());
    return data;
  }
  std::shared_ptr<DeviceRuntime> runtime_;
};

TEST_P(SyclRuntime, TellsItsDevices) {
  ASSERT_GE(runtime_->count(), 1);
  for (int device = 0; device < runtime_->count(); ++device) {
    const DeviceInfo info = runtime_->describe(device);
    EXPECT_EQ(info.ordinal, device);
    EXPECT_EQ(info.kind, RuntimeKind::kSycl);
    EXPECT_FALSE(info.name.empty());
    EXPECT_GT(info.memory_bytes, 0U);
    EXPECT_FALSE(info.attributes.at("platform").empty());
    EXPECT_GT(runtime_->memory(device).free_bytes, 0U);
    EXPECT_LE(runtime_->memory(device).free_bytes, runtime_->memory(device).total_bytes);
  }
  EXPECT_NE(runtime_->version().find("DPC++"), std::string::npos);
}

TEST_P(SyclRuntime, CopiesBetweenAllKindsOfMemory) {
  constexpr MemoryKind kKinds[] = {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kPageable,
                                   MemoryKind::kManaged};
  Stream stream(*runtime_, 0);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, (std::size_t{4} << 20) + 3}) {
    for (const MemoryKind from : kKinds) {
      for (const MemoryKind to : kKinds) {
        const Buffer source(*runtime_, 0, from, bytes);
        const Buffer target(*runtime_, 0, to, bytes);
        const auto data = numbered(bytes, 11);
        put(source, data);
        put(target, std::vector<unsigned char>(bytes, 0xEE));
        runtime_->copy_async(target.data(), target.copy_device(), source.data(), source.copy_device(), bytes,
                             stream.handle());
        stream.synchronize();
        EXPECT_TRUE(runtime_->done(stream.handle()));
        EXPECT_EQ(held(target), data) << to_string(from) << " to " << to_string(to) << ", " << bytes << " bytes";
      }
    }
  }
}

// Transports that wait for several things ask again and again: nothing else may be needed for the work to go on.
TEST_P(SyclRuntime, AQueueGoesOnWhileItIsOnlyAsked) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  constexpr std::int64_t kPatienceNs = 20'000'000'000;
  const Buffer source(*runtime_, 0, MemoryKind::kPinned, kBytes);
  const Buffer target(*runtime_, 0, MemoryKind::kDevice, kBytes);
  const auto data = numbered(kBytes, 5);
  put(source, data);
  Stream stream(*runtime_, 0);
  EXPECT_TRUE(runtime_->done(stream.handle()));
  runtime_->copy_async(target.data(), 0, source.data(), -1, kBytes, stream.handle());
  const std::int64_t start = now_ns();
  while (!runtime_->done(stream.handle()) && now_ns() - start < kPatienceNs) std::this_thread::yield();
  EXPECT_TRUE(runtime_->done(stream.handle()));
  EXPECT_EQ(held(target), data);
}

// Each copy reads what the one before it wrote: in any other order the end is another.
TEST_P(SyclRuntime, AQueueKeepsItsOrder) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::vector<Buffer> chain;
  for (int i = 0; i < 9; ++i) chain.emplace_back(*runtime_, 0, MemoryKind::kDevice, kBytes);
  const auto data = numbered(kBytes, 3);
  put(chain.front(), data);
  Stream stream(*runtime_, 0);
  for (std::size_t i = 1; i < chain.size(); ++i) {
    runtime_->copy_async(chain[i].data(), 0, chain[i - 1].data(), 0, kBytes, stream.handle());
  }
  stream.synchronize();
  EXPECT_EQ(held(chain.back()), data);
}

TEST_P(SyclRuntime, AQueueWaitsForAnEventOfAnother) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const Buffer first(*runtime_, 0, MemoryKind::kDevice, kBytes);
  const Buffer middle(*runtime_, 0, MemoryKind::kDevice, kBytes);
  const Buffer last(*runtime_, 0, MemoryKind::kDevice, kBytes);
  Stream one(*runtime_, 0);
  Stream other(*runtime_, 0);
  const EventHandle event = runtime_->create_event(0);
  for (unsigned round = 0; round < 5; ++round) {
    const auto data = numbered(kBytes, round);
    put(first, data);
    runtime_->copy_async(middle.data(), 0, first.data(), 0, kBytes, one.handle());
    runtime_->record(event, one.handle());
    runtime_->wait(other.handle(), event);
    runtime_->copy_async(last.data(), 0, middle.data(), 0, kBytes, other.handle());
    other.synchronize();
    ASSERT_EQ(held(last), data) << "round " << round;
  }
  runtime_->destroy_event(event);
}

// Events of a queue are in order, and what lies between two of them is no more than the host's clock says of both.
TEST_P(SyclRuntime, EventsTimeWhatIsBetweenThem) {
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  const Buffer source(*runtime_, 0, MemoryKind::kDevice, kBytes);
  const Buffer target(*runtime_, 0, MemoryKind::kDevice, kBytes);
  put(source, numbered(kBytes, 1));
  Stream stream(*runtime_, 0);
  const EventHandle start = runtime_->create_event(0);
  const EventHandle middle = runtime_->create_event(0);
  const EventHandle stop = runtime_->create_event(0);
  runtime_->synchronize_event(start);  // never recorded: nothing to wait for
  EXPECT_THROW((void)runtime_->elapsed_ns(start, stop), RuntimeCallError);
  const std::int64_t before = now_ns();
  runtime_->record(start, stream.handle());
  runtime_->copy_async(target.data(), 0, source.data(), 0, kBytes, stream.handle());
  runtime_->record(middle, stream.handle());
  runtime_->copy_async(source.data(), 0, target.data(), 0, kBytes, stream.handle());
  runtime_->record(stop, stream.handle());
  runtime_->synchronize_event(stop);
  const std::int64_t by_host = now_ns() - before;
  const std::int64_t whole = runtime_->elapsed_ns(start, stop);
  EXPECT_GT(runtime_->elapsed_ns(start, middle), 0);
  EXPECT_GT(runtime_->elapsed_ns(middle, stop), 0);
  EXPECT_EQ(whole, runtime_->elapsed_ns(start, middle) + runtime_->elapsed_ns(middle, stop));
  EXPECT_LE(whole, by_host);
  for (const EventHandle event : {start, middle, stop}) runtime_->destroy_event(event);
}

TEST_P(SyclRuntime, SaysWhatItHasNot) {
  EXPECT_THROW((void)runtime_->kernel(0, "lg_copy"), Unsupported);
  EXPECT_FALSE(runtime_->can_share(MemoryKind::kDevice));
  EXPECT_NE(runtime_->why_not_managed(0, ManagedUse::kPrefetch), "");
  AllocateOptions combined;
  combined.write_combined = true;
  EXPECT_THROW(Buffer(*runtime_, 0, MemoryKind::kPinned, 64, combined), Unsupported);
  EXPECT_THROW(Buffer(*runtime_, 0, MemoryKind::kDevice, std::numeric_limits<std::size_t>::max() / 4), MemoryError);
  EXPECT_THROW((void)runtime_->describe(runtime_->count()), CallerError);
}

// Whole cases, each verified by its bytes; then those that only kernels can do.
TEST_P(SyclRuntime, MovesAndVerifiesTheDataOfCases) {
  with_sessions(runtime_, 1, [](Session& session, Group&) {
    for (const Pattern pattern :
         {Pattern::kHostToDevice, Pattern::kDeviceToHost, Pattern::kHostDeviceBidirectional, Pattern::kLocalCopy}) {
      for (const ClockKind clock : {ClockKind::kHost, ClockKind::kEvent}) {
        CaseSpec spec = short_case("copy_engine", pattern, 1, 100003);
        if (pattern == Pattern::kHostToDevice || pattern == Pattern::kHostDeviceBidirectional) {
          spec.places.source.kind = MemoryKind::kPinned;
        }
        if (pattern == Pattern::kDeviceToHost) spec.places.target.kind = MemoryKind::kPageable;
        spec.timing.clock = clock;
        const auto result = session.measure(spec);
        EXPECT_TRUE(result->measurement.verified);
        EXPECT_FALSE(result->measurement.samples.empty());
      }
    }
    CaseSpec gated = case_of("copy_engine", Pattern::kLocalCopy, 1, 4096);
    gated.timing.cadence = Cadence::kGated;
    EXPECT_THROW((void)session.measure(gated), Unsupported);
    EXPECT_THROW((void)session.measure(case_of("kernel", Pattern::kLocalCopy, 1, 4096)), Unsupported);
  });
}

INSTANTIATE_TEST_SUITE_P(Libraries, SyclRuntime, testing::Values("stand_in", "installed"),
                         [](const auto& tested) { return std::string(tested.param); });

class SyclStandIn : public testing::Test {
 protected:
  void TearDown() override { control_.configure(""); }
  StandInControl control_{(kStandInFolder + "/libDPCTLSyclInterface.so").c_str()};
};

TEST_F(SyclStandIn, AGpuOfTwoBackendsIsOne) {
  const auto runtime = open_sycl(kStandInFolder);
  ASSERT_EQ(runtime->count(), 2);
  EXPECT_EQ(runtime->describe(0).architecture, "level_zero:gpu");
  EXPECT_EQ(runtime->describe(1).architecture, "level_zero:gpu");
}

TEST_F(SyclStandIn, ACpuStandsInWhereThereIsNoGpu) {
  control_.configure("devices=0");
  const auto runtime = open_sycl(kStandInFolder);
  ASSERT_EQ(runtime->count(), 1);
  EXPECT_EQ(runtime->describe(0).architecture, "opencl:cpu");
}

TEST_F(SyclStandIn, OpensTheDevicesThatWereAskedFor) {
  EXPECT_EQ(open_sycl(kStandInFolder, {1})->describe(0).ordinal, 1);
  EXPECT_THROW((void)open_sycl(kStandInFolder, {2}), Unsupported);
  EXPECT_THROW((void)open_sycl(kStandInFolder, {0, 0}), Unsupported);
}

TEST_F(SyclStandIn, PeersAreReachedWhereTheyMayBe) {
  auto runtime = open_sycl(kStandInFolder);
  EXPECT_EQ(runtime->peer_access(0, 1), "");
  EXPECT_EQ(runtime->peer_access(0, 1), "");  // the library ends the process at a second enabling
  EXPECT_NE(open_sycl(kStandInFolder, {}, false)->peer_access(0, 1), "");
  control_.configure("peer=0");
  EXPECT_NE(open_sycl(kStandInFolder)->peer_access(0, 1), "");
}

TEST_F(SyclStandIn, CopiesBetweenDevicesAreVerified) {
  with_sessions(open_sycl(kStandInFolder), 2, [](Session& session, Group&) {
    for (const char* transport : {"copy_engine", "staging"}) {
      for (const Pattern pattern : {Pattern::kUnidirectional, Pattern::kBidirectional, Pattern::kPingpong,
                                    Pattern::kAlltoall, Pattern::kRingShift}) {
        const auto result = session.measure(short_case(transport, pattern, 2, 65536));
        EXPECT_TRUE(result->measurement.verified) << transport << ' ' << to_string(pattern);
      }
    }
    EXPECT_THROW((void)session.measure(case_of("copy_engine", Pattern::kAllreduce, 2, 4096)), Unsupported);
  });
  EXPECT_EQ(control_.live(), 0);
}

TEST_F(SyclStandIn, AFailureNamesItsCall) {
  for (const std::string call : {"DPCTLQueue_Create", "DPCTLContext_CreateFromDevices"}) {
    control_.configure("fail=" + call);
    EXPECT_THROW((void)open_sycl(kStandInFolder), RuntimeCallError) << call;
    EXPECT_EQ(control_.live(), 0) << call;
  }
  control_.configure("fail=DPCTLQueue_Memcpy;fail=DPCTLQueue_Wait:1:5;fail=DPCTLmalloc_host");
  const auto runtime = open_sycl(kStandInFolder);
  EXPECT_THROW(Buffer(*runtime, 0, MemoryKind::kPinned, 64), MemoryError);
  const Buffer memory(*runtime, 0, MemoryKind::kDevice, 64);
  Stream stream(*runtime, 0);
  EXPECT_THROW(runtime->copy_async(memory.data(), 0, memory.data(), 0, 64, stream.handle()), RuntimeCallError);
  try {
    stream.synchronize();
    FAIL() << "what the handler was told is lost";
  } catch (const RuntimeCallError& error) {
    EXPECT_EQ(error.call(), "DPCTLQueue_Wait");
    EXPECT_EQ(error.code(), 5);
  }
  stream.synchronize();  // told once
}

TEST_F(SyclStandIn, WhereThereIsNoLibraryTheFixIsNamed) {
  try {
    (void)open_sycl("/nowhere");
    GTEST_SKIP() << "DPCTL's library is installed where the loader finds it";
  } catch (const Unsupported& reason) {
    EXPECT_NE(std::string(reason.what()).find("pip install dpctl intel-opencl-rt"), std::string::npos);
  }
}

}  // namespace
}  // namespace linkgauge
