// The host's kernels: what is filled is found right, each wrong byte is found, and reductions agree with the checks.
#include "device/host_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/case_spec.h"
#include "base/errors.h"
#include "kernels/kernels.h"
#include "kernels/values.h"

namespace linkgauge {
namespace {

template <typename... Arguments>
void run_kernel(std::string_view name, Arguments... arguments) {
  void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
  const HostKernel kernel = host_kernel(name);
  ASSERT_EQ(kernel.argument_bytes.size(), sizeof...(arguments));
  const std::size_t sizes[] = {sizeof(arguments)..., 0};
  for (std::size_t i = 0; i < sizeof...(arguments); ++i) ASSERT_EQ(kernel.argument_bytes[i], sizes[i]) << name << i;
  kernel.run(pointers, LaunchShape{});
}

struct Range {
  std::uint32_t datatype = values::kUint8;
  std::uint32_t op = kRawBytes;
  std::uint64_t seed = 11;
  std::int32_t ranks = 3;
  std::uint64_t offset = 0;
};

void fill(void* target, std::uint64_t bytes, const Range& range, std::int32_t rank) {
  run_kernel(kKernelFill, target, bytes, range.datatype, range.op, range.seed, rank, range.ranks, range.offset);
}

CheckResult check(const void* data, std::uint64_t bytes, const Range& range, std::int32_t rank) {
  CheckResult result{0, ~std::uint64_t{0}, 0, 0};
  run_kernel(kKernelCheck, data, bytes, range.datatype, range.op, range.seed, rank, range.ranks, range.offset, &result);
  return result;
}

TEST(HostKernels, RawBytesAtAnyOffsetAndSizeAreOneStream) {
  std::vector<std::byte> whole(300);
  fill(whole.data(), whole.size(), {}, 1);
  for (std::uint64_t offset = 0; offset < 20; ++offset) {
    for (std::uint64_t bytes : {0, 1, 5, 7, 8, 9, 16, 63, 100}) {
      std::vector<std::byte> part(bytes + 1, std::byte{0x5a});
      Range range;
      range.offset = offset;
      fill(part.data(), bytes, range, 1);
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + offset, bytes), 0);
      EXPECT_EQ(part[bytes], std::byte{0x5a});
      EXPECT_EQ(check(part.data(), bytes, range, 1).bad_bytes, 0U);
      if (bytes > 0) {
        EXPECT_GT(check(part.data(), bytes, range, 2).bad_bytes, bytes == 1 ? 0U : bytes / 2);
      }
    }
  }
}

TEST(HostKernels, EveryWrongByteIsFound) {
  Range range;
  range.offset = 3;
  std::vector<std::byte> data(77);
  fill(data.data(), data.size(), range, 0);
  for (std::size_t place = 0; place < data.size(); ++place) {
    data[place] ^= std::byte{0x10};
    const CheckResult result = check(data.data(), data.size(), range, 0);
    EXPECT_EQ(result.bad_bytes, 1U);
    EXPECT_EQ(result.first_bad_offset, place);
    EXPECT_EQ(result.expected ^ result.found, 0x10U);
    data[place] ^= std::byte{0x10};
  }
}

TEST(HostKernels, PoisonIsWrongInEveryByte) {
  std::vector<std::byte> data(64);
  for (std::uint32_t op : {kRawBytes, values::kSum}) {
    Range range;
    range.op = op;
    range.datatype = values::kFloat32;
    fill(data.data(), data.size(), range, -1 - 2);
    EXPECT_EQ(check(data.data(), data.size(), range, 2).bad_bytes, data.size());
  }
}

TEST(HostKernels, ReduceGivesWhatCheckExpectsForEveryDatatypeAndOp) {
  for (std::uint32_t datatype = 0; datatype < 12; ++datatype) {
    for (std::uint32_t op = 0; op < 5; ++op) {
      for (std::int32_t ranks : {1, 2, 3, 4, 20}) {
        if (!values::reduction_is_exact(datatype, op, ranks)) continue;
        const std::uint64_t elements = 2500;
        const std::uint64_t bytes = elements * values::element_bytes(datatype);
        Range range{datatype, op, 5, ranks, 40 * values::element_bytes(datatype)};
        std::vector<std::vector<std::byte>> inputs(ranks, std::vector<std::byte>(bytes));
        std::vector<const void*> sources;
        for (std::int32_t rank = 0; rank < ranks; ++rank) {
          fill(inputs[rank].data(), bytes, range, rank);
          sources.push_back(inputs[rank].data());
        }
        std::vector<std::byte> target(bytes);
        const void* const* pointers = sources.data();
        run_kernel(kKernelReduce, static_cast<void*>(target.data()), pointers, ranks, elements, datatype, op);
        ASSERT_EQ(check(target.data(), bytes, range, 0).bad_bytes, 0U) << datatype << " " << op << " " << ranks;
        void* in_place = inputs[ranks - 1].data();
        run_kernel(kKernelReduce, in_place, pointers, ranks, elements, datatype, op);
        ASSERT_EQ(check(in_place, bytes, range, 0).bad_bytes, 0U);
        target[bytes - 1] ^= std::byte{1};
        ASSERT_EQ(check(target.data(), bytes, range, 0).bad_bytes, 1U);
      }
    }
  }
}

TEST(HostKernels, CopyMovesEveryByteAndNoOther) {
  for (std::uint64_t bytes : {0, 1, 15, 16, 127, 128, 129, 1000, 4097}) {
    for (std::size_t shift : {0, 1, 3}) {
      std::vector<std::byte> source(bytes + 8);
      std::vector<std::byte> target(bytes + 8, std::byte{0x77});
      fill(source.data(), source.size(), {}, 0);
      run_kernel(kKernelCopy, static_cast<void*>(target.data() + shift), static_cast<const void*>(source.data()),
                 bytes);
      EXPECT_EQ(std::memcmp(target.data() + shift, source.data(), bytes), 0);
      EXPECT_EQ(target[bytes + shift], std::byte{0x77});
    }
  }
}

TEST(HostKernels, ChaseFollowsThePointers) {
  std::vector<void*> ring(7);
  for (std::size_t i = 0; i < ring.size(); ++i) ring[i] = &ring[(i + 3) % ring.size()];
  void* end = nullptr;
  run_kernel(kKernelChase, static_cast<const void*>(ring.data()), std::uint64_t{5}, &end);
  EXPECT_EQ(end, &ring[15 % 7]);
}

TEST(HostKernels, FlagPingpongMeetsAndGivesUpAlone) {
  for (const std::int32_t relaxed : {0, 1}) {
    std::uint64_t flags[2] = {};
    std::uint64_t gave_up[2] = {};
    const std::uint64_t limit = 1'000'000'000;
    std::thread other([&] {
      run_kernel(kKernelFlagPingpong, &flags[1], &flags[0], std::uint64_t{1}, std::uint64_t{50}, std::int32_t{0}, limit,
                 &gave_up[1], relaxed);
    });
    run_kernel(kKernelFlagPingpong, &flags[0], &flags[1], std::uint64_t{1}, std::uint64_t{50}, std::int32_t{1}, limit,
               &gave_up[0], relaxed);
    other.join();
    EXPECT_EQ(flags[0], 50U);
    EXPECT_EQ(flags[1], 50U);
    EXPECT_EQ(gave_up[0] + gave_up[1], 0U);
    run_kernel(kKernelFlagPingpong, &flags[0], &flags[1], std::uint64_t{51}, std::uint64_t{50}, std::int32_t{1},
               std::uint64_t{100}, &gave_up[0], relaxed);
    EXPECT_EQ(gave_up[0], 51U);
  }
}

TEST(HostKernels, GateWaitsForItsValueOrGivesUp) {
  std::uint64_t open = 4;
  std::uint64_t gave_up = 0;
  const std::uint64_t* reads = &open;
  run_kernel(kKernelGate, reads, std::uint64_t{4}, std::uint64_t{10}, &gave_up);
  EXPECT_EQ(gave_up, 0U);
  run_kernel(kKernelGate, reads, std::uint64_t{5}, std::uint64_t{10}, &gave_up);
  EXPECT_EQ(gave_up, 1U);
}

TEST(HostKernels, AnUnknownNameIsNamedWithThoseThereAre) {
  try {
    host_kernel("lg_nothing");
    FAIL();
  } catch (const CallerError& error) {
    EXPECT_NE(std::string(error.what()).find("lg_nothing"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(kKernelReduce), std::string::npos);
  }
}

}  // namespace
}  // namespace linkgauge
