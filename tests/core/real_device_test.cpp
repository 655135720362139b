// Every kernel, copy and memory kind on whatever devices this machine has: host devices always, GPUs where there are
// any. Nothing here knows which; a machine without GPUs says that it skips them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/case_spec.h"
#include "base/errors.h"
#include "case_maker.h"
#include "device/device_runtime.h"
#include "device/kernel_tuning.h"
#include "kernels/kernels.h"
#include "kernels/values.h"

namespace linkgauge {
namespace {

std::shared_ptr<DeviceRuntime> open_named(const std::string& which) {
  RuntimeRequest request;
  request.which = which;
  request.host_devices = 2;
  request.library_folders = library_folders_of_tests();
  return open_runtime(request);
}

class RealDevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      runtime_ = open_named(GetParam());
    } catch (const Unsupported& reason) {
      GTEST_SKIP() << reason.what();
    }
    runtime_->bind_thread(0);
    stream_ = Stream(*runtime_, 0);
    found_ = Buffer(*runtime_, 0, MemoryKind::kDevice, sizeof(CheckResult));
  }
  void TearDown() override {
    found_ = Buffer();
    stream_ = Stream();
  }
  bool is_gpu() const { return runtime_->name() != "host"; }

  template <typename... Arguments>
  void run(const char* kernel, const LaunchShape& shape, Arguments... arguments) {
    void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
    runtime_->launch(runtime_->kernel(0, kernel), shape, pointers, stream_.handle());
  }
  struct Data {
    std::uint32_t datatype = values::kUint8;
    std::uint32_t op = kRawBytes;
    std::uint64_t seed = 77;
    std::int32_t rank = 0;
    std::int32_t ranks = 3;
    std::uint64_t offset = 0;
  };
  void fill(void* target, std::uint64_t bytes, const Data& data) {
    run(kKernelFill, {16, 256, 0}, target, bytes, data.datatype, data.op, data.seed, data.rank, data.ranks,
        data.offset);
  }
  CheckResult check(const void* checked, std::uint64_t bytes, const Data& data) {
    CheckResult result{0, ~std::uint64_t{0}, 0, 0};
    runtime_->copy_now(found_.data(), 0, &result, -1, sizeof result);
    run(kKernelCheck, {16, 256, 0}, checked, bytes, data.datatype, data.op, data.seed, data.rank, data.ranks,
        data.offset, found_.data());
    stream_.synchronize();
    runtime_->copy_now(&result, -1, found_.data(), 0, sizeof result);
    return result;
  }

  std::shared_ptr<DeviceRuntime> runtime_;
  Stream stream_;
  Buffer found_;
};

INSTANTIATE_TEST_SUITE_P(Runtimes, RealDevice, ::testing::Values("host", "cuda", "hip"),
                         [](const auto& which) { return std::string(which.param); });

TEST_P(RealDevice, FillsWhatTheHostComputes) {
  const std::uint64_t bytes = 4099;
  Buffer buffer(*runtime_, 0, MemoryKind::kDevice, bytes + 64);
  std::vector<unsigned char> back(bytes);
  for (std::uint32_t datatype = 0; datatype < 12; ++datatype) {
    for (const std::uint32_t op : {0U, 1U, 2U, 3U, 4U, kRawBytes}) {
      for (const std::int32_t rank : {0, 2, -1, -3}) {
        for (const std::uint64_t shift : {0, 3}) {
          Data data{datatype, op, 5 + datatype, rank, 4, 8 * 1000 + 8 * shift};
          fill(buffer.at(8 * shift), bytes, data);
          stream_.synchronize();
          runtime_->copy_now(back.data(), -1, buffer.at(8 * shift), 0, bytes);
          const values::Recipe recipe = values::recipe_of(datatype, op, data.ranks);
          std::uint64_t wrong = 0;
          for (std::uint64_t i = 0; i < bytes; ++i) {
            const std::uint64_t at = data.offset + i;
            const auto word = values::fill_word(datatype, op, data.seed, rank, recipe, at / 8);
            wrong += back[i] != values::byte_of(word, at) ? 1 : 0;
          }
          ASSERT_EQ(wrong, 0U) << datatype << " " << op << " " << rank << " " << shift;
        }
      }
    }
  }
}

TEST_P(RealDevice, FindsTheFirstWrongElement) {
  const std::uint64_t bytes = (1 << 20) + 13;
  Buffer buffer(*runtime_, 0, MemoryKind::kDevice, bytes);
  Data data;
  fill(buffer.data(), bytes, data);
  EXPECT_EQ(check(buffer.data(), bytes, data).bad_bytes, 0U);
  std::uint64_t bad = 0;
  for (const std::uint64_t place : {bytes - 1, bytes - 7, bytes / 2 + 1, std::uint64_t{1234}, std::uint64_t{0}}) {
    unsigned char byte = 0;
    runtime_->copy_now(&byte, -1, buffer.at(place), 0, 1);
    const unsigned char changed = byte ^ 0x10;
    runtime_->copy_now(buffer.at(place), 0, &changed, -1, 1);
    const CheckResult result = check(buffer.data(), bytes, data);
    EXPECT_EQ(result.bad_bytes, ++bad);
    EXPECT_EQ(result.first_bad_offset, place);
    EXPECT_EQ(result.expected, byte);
    EXPECT_EQ(result.found, changed);
  }
  data.rank = -1;
  fill(buffer.data(), bytes, data);
  data.rank = 0;
  EXPECT_EQ(check(buffer.data(), bytes, data).bad_bytes, bytes);  // poison differs everywhere
}

TEST_P(RealDevice, ReducesEveryDatatypeByEveryOp) {
  // Several turns of all a GPU's threads. A host device has one thread, and emulated it works on each for long.
  const std::uint64_t elements = is_gpu() ? 10'007 : 1'003;
  const std::int32_t ranks = 4;
  std::vector<Buffer> sources;
  for (int i = 0; i < ranks; ++i) sources.emplace_back(*runtime_, 0, MemoryKind::kDevice, 8 * elements + 64);
  Buffer target(*runtime_, 0, MemoryKind::kDevice, 8 * elements + 64);
  Buffer list(*runtime_, 0, MemoryKind::kDevice, ranks * sizeof(void*));
  for (std::uint32_t datatype = 0; datatype < 12; ++datatype) {
    for (std::uint32_t op = 0; op < 5; ++op) {
      for (const bool aligned : {true, false}) {
        const std::uint64_t size = values::element_bytes(datatype);
        const std::uint64_t shift = aligned ? 0 : 8;  // not a multiple of 16
        const std::uint64_t bytes = elements * size;
        Data data{datatype, op, 3, 0, ranks, 0};
        std::vector<const void*> pointers;
        for (data.rank = 0; data.rank < ranks; ++data.rank) {
          const Buffer& source = sources[static_cast<std::size_t>(data.rank)];
          fill(source.at(shift), bytes, data);
          pointers.push_back(source.at(shift));
        }
        data.rank = -1;
        fill(target.at(shift), bytes, data);
        stream_.synchronize();
        runtime_->copy_now(list.data(), 0, pointers.data(), -1, list.size());
        // Into a buffer of its own, then in place.
        run(kKernelReduce, {8, 128, 0}, target.at(shift), list.data(), ranks, elements, datatype, op);
        EXPECT_EQ(check(target.at(shift), bytes, data).bad_bytes, 0U) << datatype << " " << op << aligned;
        run(kKernelReduce, {8, 128, 0}, sources[1].at(shift), list.data(), ranks, elements, datatype, op);
        EXPECT_EQ(check(sources[1].at(shift), bytes, data).bad_bytes, 0U) << datatype << " " << op << aligned;
      }
    }
  }
}

TEST_P(RealDevice, EveryCopyVariantCopiesEverySizeAndAlignment) {
  const std::uint64_t most = (3 << 20) + 77;
  Buffer source(*runtime_, 0, MemoryKind::kDevice, most + 64);
  Buffer target(*runtime_, 0, MemoryKind::kDevice, most + 64);
  fill(source.data(), most + 64, {});
  // Each kernel with its smallest and its largest shape.
  std::vector<CopyVariant> variants = copy_variants(*runtime_, 0, most, 0);
  std::stable_sort(variants.begin(), variants.end(),
                   [](const CopyVariant& a, const CopyVariant& b) { return a.kernel < b.kernel; });
  std::vector<CopyVariant> tried;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const bool first = i == 0 || variants[i].kernel != variants[i - 1].kernel;
    const bool last = i + 1 == variants.size() || variants[i].kernel != variants[i + 1].kernel;
    if (first || last) tried.push_back(variants[i]);
  }
  for (const CopyVariant& variant : tried) {
    for (const std::uint64_t bytes :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{15}, std::uint64_t{4096}, std::uint64_t{65'539}, most}) {
      for (const auto& [to, from] : {std::pair<int, int>{0, 0}, {16, 0}, {3, 3}, {8, 0}, {4, 8}, {1, 2}}) {
        Data poison;
        poison.rank = -1;
        fill(target.data(), most + 64, poison);
        run(variant.kernel.c_str(), variant.shape, target.at(static_cast<std::size_t>(to)),
            static_cast<const void*>(source.at(static_cast<std::size_t>(from))), bytes);
        Data data;
        data.offset = static_cast<std::uint64_t>(from);
        const std::string what = variant.kernel + " " + std::to_string(variant.shape.blocks) + "x" +
                                 std::to_string(variant.shape.threads) + " " + std::to_string(bytes) + " bytes to " +
                                 std::to_string(to) + " from " + std::to_string(from);
        ASSERT_EQ(check(target.at(static_cast<std::size_t>(to)), bytes, data).bad_bytes, 0U) << what;
        // Nothing behind the end was touched.
        Data behind = poison;
        behind.offset = static_cast<std::uint64_t>(to) + bytes;
        std::vector<unsigned char> rest(32);
        runtime_->copy_now(rest.data(), -1, target.at(behind.offset), 0, rest.size());
        const values::Recipe recipe = values::recipe_of(behind.datatype, behind.op, behind.ranks);
        for (std::size_t i = 0; i < rest.size(); ++i) {
          const std::uint64_t at = behind.offset + i;
          const auto word = values::fill_word(behind.datatype, behind.op, behind.seed, -1, recipe, at / 8);
          ASSERT_EQ(rest[i], values::byte_of(word, at)) << what;
        }
      }
    }
  }
}

TEST_P(RealDevice, KernelsReachEveryMemoryKind) {
  const std::uint64_t bytes = 100'000;
  struct Kind {
    MemoryKind kind;
    AllocateOptions options;
  };
  std::vector<Kind> kinds = {{MemoryKind::kDevice, {}},
                             {MemoryKind::kPinned, {}},
                             {MemoryKind::kPinned, {-1, true, false}},
                             {MemoryKind::kPinned, {-1, false, true}},
                             {MemoryKind::kManaged, {}}};
  for (const Kind& kind : kinds) {
    Buffer buffer;
    try {
      buffer = Buffer(*runtime_, 0, kind.kind, bytes, kind.options);
    } catch (const Unsupported&) {
      continue;  // host devices have no managed memory of their own
    }
    fill(buffer.data(), bytes, {});
    EXPECT_EQ(check(buffer.data(), bytes, {}).bad_bytes, 0U) << to_string(kind.kind);
    // The host sees the same.
    std::vector<unsigned char> back(bytes);
    runtime_->copy_now(back.data(), -1, buffer.data(), buffer.copy_device(), bytes);
    const auto word = values::raw_word(values::stream_key(77, 0), 0);
    EXPECT_EQ(back[0], values::byte_of(word, 0));
  }
}

TEST_P(RealDevice, CopyEngineMovesBetweenAllKinds) {
  const std::uint64_t bytes = (2 << 20) + 5;
  const MemoryKind kinds[] = {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kPageable};
  Buffer proof(*runtime_, 0, MemoryKind::kDevice, bytes);
  for (const MemoryKind from : kinds) {
    for (const MemoryKind to : kinds) {
      Buffer source(*runtime_, 0, from, bytes);
      Buffer target(*runtime_, 0, to, bytes);
      Data poison;
      poison.rank = -1;
      fill(proof.data(), bytes, {});
      stream_.synchronize();
      runtime_->copy_now(source.data(), source.copy_device(), proof.data(), 0, bytes);
      runtime_->copy_async(target.data(), target.copy_device(), source.data(), source.copy_device(), bytes,
                           stream_.handle());
      stream_.synchronize();
      fill(proof.data(), bytes, poison);
      stream_.synchronize();
      runtime_->copy_now(proof.data(), 0, target.data(), target.copy_device(), bytes);
      EXPECT_EQ(check(proof.data(), bytes, {}).bad_bytes, 0U) << to_string(from) << " to " << to_string(to);
    }
  }
}

TEST_P(RealDevice, ChaseEndsWhereTheChainDoes) {
  const std::size_t places = 5000;
  const std::size_t stride = 128;
  Buffer ring(*runtime_, 0, MemoryKind::kDevice, places * stride);
  Buffer end(*runtime_, 0, MemoryKind::kPinned, 64);
  std::vector<std::size_t> order(places);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  std::vector<std::byte> image(ring.size());
  for (std::size_t i = 0; i < places; ++i) {
    void* next = ring.at(order[(i + 1) % places] * stride);
    std::memcpy(&image[order[i] * stride], &next, sizeof next);
  }
  runtime_->copy_now(ring.data(), 0, image.data(), -1, image.size());
  const std::uint64_t loads = 3 * places + 17;
  run(kKernelChase, {1, 1, 0}, static_cast<const void*>(ring.at(order[0] * stride)), loads, end.data());
  stream_.synchronize();
  EXPECT_EQ(*static_cast<void**>(end.data()), ring.at(order[17] * stride));
}

TEST_P(RealDevice, GateHoldsWhatIsQueuedAndEventsTimeIt) {
  Buffer flags(*runtime_, 0, MemoryKind::kPinned, 64);
  std::memset(flags.data(), 0, 64);
  auto* open_flag = static_cast<std::uint64_t*>(flags.data());
  std::uint64_t* gave_up = open_flag + 1;
  (void)runtime_->kernel(0, kKernelEmpty);
  const EventHandle start = runtime_->create_event(0);
  const EventHandle stop = runtime_->create_event(0);
  run(kKernelGate, {1, 1, 0}, open_flag, std::uint64_t{1}, ~std::uint64_t{0} >> 1, gave_up);
  runtime_->record(start, stream_.handle());
  for (int i = 0; i < 10; ++i) run(kKernelEmpty, {1, 1, 0});
  runtime_->record(stop, stream_.handle());
  usleep(20'000);
  EXPECT_FALSE(runtime_->done(stream_.handle()));
  reinterpret_cast<std::atomic<std::uint64_t>*>(open_flag)->store(1, std::memory_order_release);
  runtime_->synchronize_event(stop);
  const std::int64_t took = runtime_->elapsed_ns(start, stop);
  EXPECT_GE(took, 0);
  EXPECT_LT(took, 20'000'000) << "the time at the gate was counted";
  EXPECT_EQ(*gave_up, 0U);
  runtime_->destroy_event(start);
  runtime_->destroy_event(stop);
}

TEST_P(RealDevice, AClosedGateGivesUp) {
  Buffer flags(*runtime_, 0, MemoryKind::kPinned, 64);
  std::memset(flags.data(), 0, 64);
  auto* open_flag = static_cast<std::uint64_t*>(flags.data());
  run(kKernelGate, {1, 1, 0}, open_flag, std::uint64_t{1}, std::uint64_t{10'000}, open_flag + 1);
  stream_.synchronize();
  EXPECT_EQ(open_flag[1], 1U);
}

// The kernel on one side, this thread on the other.
TEST_P(RealDevice, FlagsGoBackAndForthWithTheHost) {
  const std::uint64_t rounds = 200;
  Buffer flags(*runtime_, 0, MemoryKind::kPinned, 256);
  std::memset(flags.data(), 0, 256);
  auto* to_kernel = static_cast<std::uint64_t*>(flags.data());
  std::uint64_t* to_host = to_kernel + 16;
  std::uint64_t* gave_up = to_host + 8;
  run(kKernelFlagPingpong, {1, 1, 0}, to_kernel, to_host, std::uint64_t{1}, rounds, std::int32_t{1},
      std::uint64_t{1} << 26, gave_up, std::int32_t{0});
  std::atomic_ref<std::uint64_t> seen(*to_host);
  std::atomic_ref<std::uint64_t> answer(*to_kernel);
  for (std::uint64_t round = 1; round <= rounds && *static_cast<volatile std::uint64_t*>(gave_up) == 0; ++round) {
    while (seen.load(std::memory_order_acquire) < round && *static_cast<volatile std::uint64_t*>(gave_up) == 0) {
      if (!is_gpu()) usleep(0);
    }
    answer.store(round, std::memory_order_release);
  }
  stream_.synchronize();
  EXPECT_EQ(*gave_up, 0U);
  EXPECT_EQ(*to_host, rounds);
}

TEST_P(RealDevice, AnotherProcessWritesIntoSharedMemory) {
  const std::uint64_t bytes = (5 << 20) + 3;
  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  // A GPU runtime does not survive fork: the child must be there before this process has opened one. So it is made
  // anew by exec, with the handle on its standard input.
  Buffer buffer(*runtime_, 0, MemoryKind::kDevice, bytes);
  Data poison;
  poison.rank = -1;
  fill(buffer.data(), bytes, poison);
  stream_.synchronize();
  const SharedHandle handle = runtime_->share(buffer.data());
  constexpr int kNotStarted = 77;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(to_child[0], 0);
    close(to_child[1]);
    setenv("LINKGAUGE_TEST_SHARED_RUNTIME", GetParam(), 1);
    execl("/proc/self/exe", "core_tests", "--gtest_filter=SharedMemoryChild.Writes", static_cast<char*>(nullptr));
    _exit(kNotStarted);
  }
  close(to_child[0]);
  const std::uint64_t size = handle.bytes.size();
  (void)signal(SIGPIPE, SIG_IGN);  // a child that did not start reads nothing
  const bool told = write(to_child[1], &size, sizeof size) == static_cast<ssize_t>(sizeof size) &&
                    write(to_child[1], &bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes) &&
                    write(to_child[1], handle.bytes.data(), size) == static_cast<ssize_t>(size);
  close(to_child[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted)
    GTEST_SKIP() << "this machine cannot start this program (an emulated processor)";
  EXPECT_TRUE(told);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(check(buffer.data(), bytes, {}).bad_bytes, 0U);
}

// The other half of the test above; alone it has nothing to do.
TEST(SharedMemoryChild, Writes) {
  const char* which = std::getenv("LINKGAUGE_TEST_SHARED_RUNTIME");
  if (which == nullptr) GTEST_SKIP() << "run by AnotherProcessWritesIntoSharedMemory";
  std::uint64_t size = 0;
  std::uint64_t bytes = 0;
  ASSERT_EQ(read(0, &size, sizeof size), static_cast<ssize_t>(sizeof size));
  ASSERT_EQ(read(0, &bytes, sizeof bytes), static_cast<ssize_t>(sizeof bytes));
  SharedHandle handle;
  handle.bytes.resize(size);
  ASSERT_EQ(read(0, handle.bytes.data(), size), static_cast<ssize_t>(size));
  const auto runtime = open_named(which);
  runtime->bind_thread(0);
  void* shared = runtime->open_shared(0, handle);
  {
    Stream stream(*runtime, 0);
    Buffer local(*runtime, 0, MemoryKind::kDevice, bytes);
    void* target = local.data();
    std::uint64_t seed = 77, offset = 0;
    std::uint32_t datatype = values::kUint8, op = kRawBytes;
    std::int32_t rank = 0, ranks = 3;
    void* arguments[] = {&target, &bytes, &datatype, &op, &seed, &rank, &ranks, &offset};
    runtime->launch(runtime->kernel(0, kKernelFill), {16, 256, 0}, arguments, stream.handle());
    runtime->copy_async(shared, 0, local.data(), 0, bytes, stream.handle());
    stream.synchronize();
  }
  runtime->close_shared(shared);
}

TEST_P(RealDevice, BothWaysCopyEverySizeAndAlignment) {
  const std::uint64_t most = (1 << 20) + 77;
  Buffer near(*runtime_, 0, MemoryKind::kDevice, 2 * most + 64);
  Buffer far(*runtime_, 0, MemoryKind::kPinned, 2 * most + 64);
  Data poison;
  poison.rank = -1;
  std::vector<const char*> kernels = {kKernelBothWays};
  if (is_gpu()) kernels.push_back(kKernelBothWaysU8);
  for (const char* kernel : kernels) {
    for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{17}, std::uint64_t{4097}, most}) {
      for (const std::size_t shift : {0, 1, 8}) {
        Data there, back;
        back.rank = 1;
        void* const targets[] = {near.data(), far.at(most + 16)};
        const void* const sources[] = {far.at(shift), near.at(most + 16 + shift)};
        fill(far.at(shift), bytes, there);
        fill(near.at(most + 16 + shift), bytes, back);
        for (void* target : targets) fill(target, bytes, poison);
        run(kernel, {5, 128, 0}, targets[0], sources[0], targets[1], sources[1], bytes);
        EXPECT_EQ(check(targets[0], bytes, there).bad_bytes, 0U) << kernel << " " << bytes << " " << shift;
        EXPECT_EQ(check(targets[1], bytes, back).bad_bytes, 0U) << kernel << " " << bytes << " " << shift;
      }
    }
  }
}

TEST_P(RealDevice, BothWaysRepeatEveryWord) {
  const std::uint64_t bytes = 16 * 5003;  // no whole number of warps
  const std::uint64_t chunks = (bytes + kChunkOfBothWays - 1) / kChunkOfBothWays;
  // Each way has every other chunk of both buffers, and its data come from and go to memory without gaps.
  Buffer near(*runtime_, 0, MemoryKind::kDevice, 2 * chunks * kChunkOfBothWays);
  Buffer far(*runtime_, 0, MemoryKind::kPinned, 2 * chunks * kChunkOfBothWays);
  Buffer there(*runtime_, 0, MemoryKind::kDevice, bytes);
  Buffer back(*runtime_, 0, MemoryKind::kDevice, bytes);
  Data other, poison;
  other.rank = 1;
  poison.rank = -1;
  const std::uint64_t once = 1, each = 1, second = 2, times = 16;
  const auto copy = [&](unsigned blocks, void* target, const void* source, void* target_back, const void* source_back,
                        std::uint64_t repeats, std::uint64_t to, std::uint64_t from) {
    run(kKernelBothWaysRepeated, {blocks, 128, 0}, target, source, target_back, source_back, bytes, repeats, to, from);
  };
  for (const unsigned blocks : {1U, 5U, 100U}) {
    fill(there.data(), bytes, {});
    fill(back.data(), bytes, other);
    copy(blocks, far.data(), there.data(), near.at(kChunkOfBothWays), back.data(), once, second, each);
    fill(there.data(), bytes, poison);
    copy(blocks, near.data(), there.data(), far.at(kChunkOfBothWays), there.data(), once, second, each);
    copy(blocks, near.data(), far.data(), far.at(kChunkOfBothWays), near.at(kChunkOfBothWays), times, second, second);
    copy(blocks, there.data(), near.data(), back.data(), far.at(kChunkOfBothWays), once, each, second);
    EXPECT_EQ(check(there.data(), bytes, {}).bad_bytes, 0U) << blocks;
    EXPECT_EQ(check(back.data(), bytes, other).bad_bytes, 0U) << blocks;
  }
}

TEST_P(RealDevice, PeersReachEachOther) {
  if (runtime_->count() < 2) GTEST_SKIP() << "one device";
  runtime_->bind_thread(1);
  runtime_->bind_thread(0);
  const std::string reason = runtime_->peer_access(0, 1);
  if (!reason.empty()) GTEST_SKIP() << reason;
  const std::uint64_t bytes = (4 << 20) + 1;
  Buffer near(*runtime_, 0, MemoryKind::kDevice, bytes);
  Buffer far(*runtime_, 1, MemoryKind::kDevice, bytes);
  Buffer back(*runtime_, 0, MemoryKind::kDevice, bytes);
  fill(near.data(), bytes, {});
  run(kKernelCopy, {16, 256, 0}, far.data(), static_cast<const void*>(near.data()), bytes);  // push
  run(kKernelCopy, {16, 256, 0}, back.data(), static_cast<const void*>(far.data()), bytes);  // pull
  EXPECT_EQ(check(back.data(), bytes, {}).bad_bytes, 0U);
  Data poison;
  poison.rank = -1;
  fill(back.data(), bytes, poison);
  runtime_->copy_async(back.data(), 0, far.data(), 1, bytes, stream_.handle());
  EXPECT_EQ(check(back.data(), bytes, {}).bad_bytes, 0U);
}

// Only a GPU's times say anything; and a machine that others use would make this fail for no fault of ours.
TEST_P(RealDevice, ChosenCopyIsWithinOnePercentOfAFullSweep) {
  if (!is_gpu()) GTEST_SKIP() << "host devices have one copy kernel";
  const std::size_t bytes = std::size_t{256} << 20;
  const int far_device = runtime_->count() > 1 ? 1 : 0;
  if (far_device == 1 && !runtime_->peer_access(0, 1).empty()) GTEST_SKIP() << "no peer access";
  struct Route {
    const char* name;
    MemoryKind target, source;
    int target_device, source_device;
  };
  std::vector<Route> routes = {{"local", MemoryKind::kDevice, MemoryKind::kDevice, 0, 0},
                               {"pull from host", MemoryKind::kDevice, MemoryKind::kPinned, 0, -1},
                               {"push to host", MemoryKind::kPinned, MemoryKind::kDevice, -1, 0}};
  if (far_device == 1) {
    routes.push_back({"pull from peer", MemoryKind::kDevice, MemoryKind::kDevice, 0, 1});
    routes.push_back({"push to peer", MemoryKind::kDevice, MemoryKind::kDevice, 1, 0});
  }
  for (const Route& entry : routes) {
    Buffer target(*runtime_, std::max(entry.target_device, 0), entry.target, bytes);
    Buffer source(*runtime_, std::max(entry.source_device, 0), entry.source, bytes);
    const CopyVariant chosen =
        fastest_copy(*runtime_, {0, entry.target_device, entry.source_device}, target.data(), source.data(), bytes, 0);
    const auto time = [&](const CopyVariant& variant) {
      return copy_time_ns(*runtime_, 0, variant, target.data(), source.data(), bytes, 3);
    };
    double best = time(chosen);
    CopyVariant fastest = chosen;
    for (const CopyVariant& variant : copy_variants(*runtime_, 0, bytes, 0)) {
      const double took = time(variant);
      if (took < best) {
        best = took;
        fastest = variant;
      }
    }
    // The least of so many times is lucky: both are timed again, in turn.
    double mine = std::numeric_limits<double>::max();
    best = mine;
    for (int round = 0; round < 5; ++round) {
      mine = std::min(mine, time(chosen));
      best = std::min(best, time(fastest));
    }
    const auto text = [](const CopyVariant& variant) {
      return variant.kernel + " " + std::to_string(variant.shape.blocks) + "x" + std::to_string(variant.shape.threads) +
             " " + std::to_string(variant.shape.shared_bytes);
    };
    std::printf("%s: chosen %s %.1f GB/s, best of the sweep %s %.1f GB/s\n", entry.name, text(chosen).c_str(),
                static_cast<double>(bytes) / mine, text(fastest).c_str(), static_cast<double>(bytes) / best);
    EXPECT_LE(mine, 1.01 * best) << entry.name;
  }
}

}  // namespace
}  // namespace linkgauge
