// Host devices: memory, sharing between processes, streams, events and kernels.
#include "device/host_runtime.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <thread>

#include "base/errors.h"
#include "device/host_cpu.h"
#include "kernels/kernels.h"
#include "measure/clock.h"

namespace linkgauge {
namespace {

std::shared_ptr<DeviceRuntime> host(int devices) {
  RuntimeRequest request;
  request.which = "host";
  request.host_devices = devices;
  return open_runtime(request);
}

TEST(HostRuntime, SaysWhatItsDevicesAre) {
  const auto runtime = host(3);
  EXPECT_EQ(runtime->name(), "host");
  EXPECT_EQ(runtime->count(), 3);
  for (int device = 0; device < 3; ++device) {
    const DeviceInfo info = runtime->describe(device);
    EXPECT_EQ(info.ordinal, device);
    EXPECT_EQ(info.kind, RuntimeKind::kHost);
    EXPECT_FALSE(info.name.empty());
    EXPECT_GE(std::stoi(info.attributes.at("core")), 0);
    EXPECT_GT(info.memory_bytes, 0U);
    EXPECT_LE(runtime->memory(device).free_bytes, runtime->memory(device).total_bytes);
    EXPECT_GT(runtime->memory(device).free_bytes, 0U);
    EXPECT_EQ(runtime->peer_access(device, 0), "");
  }
  EXPECT_THROW(runtime->describe(3), CallerError);
  EXPECT_THROW(runtime->bind_thread(-1), CallerError);
}

TEST(HostRuntime, DevicesAreChosenByOrdinal) {
  RuntimeRequest request;
  request.which = "host";
  request.host_devices = 4;
  request.devices = {3, 1};
  const auto runtime = open_runtime(request);
  EXPECT_EQ(runtime->count(), 2);
  EXPECT_EQ(runtime->describe(0).ordinal, 3);
  EXPECT_EQ(runtime->describe(1).ordinal, 1);
  request.devices = {4};
  EXPECT_THROW(open_runtime(request), CallerError);
  request.which = "abacus";
  EXPECT_THROW(open_runtime(request), CallerError);
}

TEST(HostRuntime, CoresDoNotDependOnTheThreadsBinding) {
  const std::vector<int> before = usable_cores();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(before.front(), &one);
  std::vector<int> bound;
  std::thread([&] {
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    bound = usable_cores();
  }).join();
  EXPECT_EQ(bound, before);
}

TEST(HostRuntime, MemoryOfEveryKind) {
  const auto runtime = host(2);
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kPageable}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{1'000'001}}) {
      AllocateOptions options;
      options.huge_pages = bytes > 4096;
      const Buffer buffer(*runtime, 1, kind, bytes, options);
      ASSERT_NE(buffer.data(), nullptr);
      std::memset(buffer.data(), 0x5a, bytes);
    }
    EXPECT_EQ(runtime->can_share(kind), kind != MemoryKind::kPageable);
  }
  EXPECT_THROW(Buffer(*runtime, 0, MemoryKind::kManaged, 8), Unsupported);
  EXPECT_THROW(Buffer(*runtime, 2, MemoryKind::kDevice, 8), CallerError);
  AllocateOptions nowhere;
  nowhere.numa_node = 1000;
  EXPECT_THROW(Buffer(*runtime, 0, MemoryKind::kPinned, 8, nowhere), Unsupported);
  AllocateOptions combined;
  combined.write_combined = true;
  EXPECT_THROW(Buffer(*runtime, 0, MemoryKind::kPinned, 8, combined), Unsupported);
  AllocateOptions here;
  here.numa_node = numa_nodes().front();
  EXPECT_NE(Buffer(*runtime, 0, MemoryKind::kDevice, 8, here).data(), nullptr);
}

TEST(HostRuntime, MoreThanIsFreeIsRefusedBeforeItIsTaken) {
  const auto runtime = host(1);
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPageable}) {
    EXPECT_THROW(Buffer(*runtime, 0, kind, runtime->memory(0).total_bytes * 2), MemoryError);
  }
}

TEST(HostRuntime, BuffersMove) {
  const auto runtime = host(1);
  Buffer first(*runtime, 0, MemoryKind::kDevice, 64);
  void* data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.copy_device(), 0);
  second = Buffer(*runtime, 0, MemoryKind::kPageable, 128);
  EXPECT_EQ(second.size(), 128U);
  EXPECT_EQ(second.copy_device(), -1);
}

// A sibling process writes into this one's memory. Each way by which memory is found from outside.
void expect_sharing_works() {
  const auto runtime = host(2);
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinned}) {
    const Buffer buffer(*runtime, 0, kind, 100'000);
    const SharedHandle handle = runtime->share(buffer.data());
    const pid_t child = fork();
    if (child == 0) {
      const auto other = host(2);
      auto* opened = static_cast<unsigned char*>(other->open_shared(1, handle));
      opened[99'999] = 0xab;
      other->close_shared(opened);
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(*buffer.at(99'999), std::byte{0xab});
    auto* again = static_cast<std::byte*>(runtime->open_shared(0, handle));
    EXPECT_EQ(again[99'999], std::byte{0xab});
    runtime->close_shared(again);
  }
  const Buffer pageable(*runtime, 0, MemoryKind::kPageable, 64);
  EXPECT_THROW(runtime->share(pageable.data()), Unsupported);
  EXPECT_THROW(runtime->share(nullptr), CallerError);
}

TEST(HostRuntime, SharesMemoryByDescriptor) { expect_sharing_works(); }

// From here on madvise fails in the calling thread, as MADV_POPULATE_WRITE does before Linux 5.14.
bool refuse_madvise() {
  sock_filter refuse[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{static_cast<unsigned short>(std::size(refuse)), refuse};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(HostRuntime, OpeningWhatAnotherSharesLeavesItsBytes) {
  const auto runtime = host(1);
  const Buffer buffer(*runtime, 0, MemoryKind::kDevice, 20'000);
  std::memset(buffer.data(), 0x5a, buffer.size());
  bool refused = false;
  std::thread([&] {
    refused = refuse_madvise();
    if (refused) runtime->close_shared(runtime->open_shared(0, runtime->share(buffer.data())));
  }).join();
  if (!refused) GTEST_SKIP() << "system calls cannot be filtered here (prctl PR_SET_SECCOMP)";
  for (std::size_t at = 0; at < buffer.size(); ++at) ASSERT_EQ(*buffer.at(at), std::byte{0x5a}) << "byte " << at;
}

TEST(HostRuntime, SharesMemoryByNameWhereAFolderIsGiven) {
  char folder[] = "/dev/shm/linkgauge-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  setenv("LINKGAUGE_SHARE_DIR", folder, 1);
  expect_sharing_works();
  unsetenv("LINKGAUGE_SHARE_DIR");
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "nothing may stay behind";
  std::filesystem::remove_all(folder);
}

TEST(HostRuntime, AGoneOrChangedHandleIsAnError) {
  const auto runtime = host(1);
  SharedHandle handle;
  {
    const Buffer buffer(*runtime, 0, MemoryKind::kDevice, 64);
    handle = runtime->share(buffer.data());
  }
  EXPECT_THROW(runtime->open_shared(0, handle), RuntimeCallError);
  const Buffer other(*runtime, 0, MemoryKind::kDevice, 64);  // takes the descriptor's number again
  EXPECT_THROW(runtime->open_shared(0, handle), RuntimeCallError);
  EXPECT_THROW(runtime->open_shared(0, SharedHandle{}), CallerError);
}

TEST(HostStream, CopiesInOrder) {
  const auto runtime = host(2);
  constexpr std::size_t kBytes = 1 << 20;
  const Buffer source(*runtime, 0, MemoryKind::kDevice, kBytes);
  const Buffer middle(*runtime, 1, MemoryKind::kDevice, kBytes);
  const Buffer target(*runtime, 0, MemoryKind::kPageable, kBytes);
  Stream stream(*runtime, 0);
  for (int round = 1; round <= 50; ++round) {
    std::memset(source.data(), round, kBytes);
    runtime->copy_async(middle.data(), 1, source.data(), 0, kBytes, stream.handle());
    runtime->copy_async(target.data(), -1, middle.data(), 1, kBytes, stream.handle());
    stream.synchronize();
    EXPECT_TRUE(runtime->done(stream.handle()));
    ASSERT_EQ(std::memcmp(target.data(), source.data(), kBytes), 0);
  }
}

TEST(HostStream, TakesMoreThanItsRingHolds) {
  const auto runtime = host(1);
  Stream stream(*runtime, 0);
  const Buffer numbers(*runtime, 0, MemoryKind::kDevice, 8 * 20'000);
  auto* values = static_cast<std::uint64_t*>(numbers.data());
  values[0] = 42;
  // Each copy needs the one before.
  for (std::size_t i = 1; i < 20'000; ++i) {
    runtime->copy_async(&values[i], 0, &values[i - 1], 0, 8, stream.handle());
  }
  stream.synchronize();
  EXPECT_EQ(values[19'999], 42U);
}

TEST(HostStream, IsFedBySeveralThreads) {
  const auto runtime = host(1);
  Stream stream(*runtime, 0);
  constexpr std::size_t kEach = 5'000;
  std::vector<std::uint64_t> targets(3 * kEach, 0);
  const std::uint64_t one = 1;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < kEach; ++i) {
        runtime->copy_async(&targets[t * kEach + i], 0, &one, -1, 8, stream.handle());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream.synchronize();
  EXPECT_EQ(std::accumulate(targets.begin(), targets.end(), std::uint64_t{0}), 3 * kEach);
}

TEST(HostStream, RunsWhatIsQueuedBeforeItGoes) {
  const auto runtime = host(1);
  std::uint64_t target = 0;
  const std::uint64_t source = 9;
  {
    const Stream stream(*runtime, 0);
    runtime->copy_async(&target, 0, &source, 0, 8, stream.handle());
  }
  EXPECT_EQ(target, 9U);
}

TEST(HostStream, ParametersAreCopiedAtTheLaunch) {
  const auto runtime = host(1);
  Stream stream(*runtime, 0);
  std::atomic<std::uint64_t> open{0};
  std::uint64_t gave_up = 0;
  char target[16] = {};
  const char source[16] = "held back";
  {
    const volatile void* gate = &open;
    std::uint64_t value = 1;
    std::uint64_t spins = UINT64_MAX;
    std::uint64_t* gave_up_at = &gave_up;
    void* gate_arguments[] = {&gate, &value, &spins, &gave_up_at};
    runtime->launch(runtime->kernel(0, kKernelGate), {}, gate_arguments, stream.handle());
    void* to = target;
    const void* from = source;
    std::uint64_t bytes = sizeof source;
    void* copy_arguments[] = {&to, &from, &bytes};
    runtime->launch(runtime->kernel(0, kKernelCopy), {}, copy_arguments, stream.handle());
    gate = nullptr;  // what the launches pointed at is gone
    to = nullptr;
    value = 0;
  }
  EXPECT_FALSE(runtime->done(stream.handle()));
  EXPECT_EQ(target[0], 0);
  open = 1;
  stream.synchronize();
  EXPECT_STREQ(target, "held back");
  EXPECT_EQ(gave_up, 0U);
  EXPECT_THROW(runtime->kernel(0, "lg_nothing"), CallerError);
}

TEST(HostEvent, OrdersStreamsAndTellsTheTime) {
  const auto runtime = host(2);
  Stream first(*runtime, 0);
  Stream second(*runtime, 1);
  const EventHandle start = runtime->create_event(0);
  const EventHandle stop = runtime->create_event(0);
  std::atomic<std::uint64_t> open{0};
  std::uint64_t gave_up = 0;
  const volatile void* gate = &open;
  std::uint64_t value = 1;
  std::uint64_t spins = UINT64_MAX;
  std::uint64_t* gave_up_at = &gave_up;
  void* arguments[] = {&gate, &value, &spins, &gave_up_at};
  EXPECT_THROW(runtime->elapsed_ns(start, stop), RuntimeCallError) << "never recorded";

  runtime->record(start, first.handle());
  runtime->launch(runtime->kernel(0, kKernelGate), {}, arguments, first.handle());
  runtime->record(stop, first.handle());
  runtime->wait(second.handle(), stop);
  std::uint64_t copied = 0;
  const std::uint64_t source = 5;
  runtime->copy_async(&copied, 1, &source, -1, 8, second.handle());
  EXPECT_THROW(runtime->elapsed_ns(start, stop), RuntimeCallError) << "not complete";
  runtime->synchronize_event(start);
  const std::int64_t held_from_ns = now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  EXPECT_FALSE(runtime->done(second.handle()));
  const std::int64_t held_ns = now_ns() - held_from_ns;
  open = 1;
  runtime->synchronize_event(stop);
  second.synchronize();
  EXPECT_EQ(copied, 5U);
  const std::int64_t elapsed_ns = runtime->elapsed_ns(start, stop);
  EXPECT_GE(elapsed_ns, held_ns) << "the gate was shut for all of that time";
  runtime->destroy_event(start);
  runtime->destroy_event(stop);
}

TEST(HostEvent, MayGoWhileQueued) {
  const auto runtime = host(1);
  Stream stream(*runtime, 0);
  for (int i = 0; i < 1'000; ++i) {
    const EventHandle event = runtime->create_event(0);
    runtime->record(event, stream.handle());
    runtime->wait(stream.handle(), event);
    runtime->destroy_event(event);
  }
  stream.synchronize();
}

TEST(HostCpu, ReadsLists) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
  EXPECT_EQ(parse_cpu_list("5"), std::vector<int>{5});
}

}  // namespace
}  // namespace linkgauge
