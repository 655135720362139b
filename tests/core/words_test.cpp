// The names of enumerations, against lists of their own: a name is of the value that stands in its place.
#include "base/words.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/case_spec.h"
#include "base/errors.h"
#include "base/runtime_kind.h"
#include "kernels/values.h"
#include "measure/sampler.h"
#include "mpi/library.h"

namespace linkgauge {
namespace {

template <typename Value>
void expect_names(const std::vector<std::pair<Value, std::string>>& expected) {
  EXPECT_EQ(kNames<Value>.words.size(), expected.size());
  for (const auto& [value, name] : expected) {
    EXPECT_EQ(to_string(value), name);
    EXPECT_EQ(from_word<Value>(name), value);
  }
}

TEST(Words, EachNameIsOfItsValue) {
  expect_names<Cadence>({{Cadence::kIsolated, "isolated"},
                         {Cadence::kStreaming, "streaming"},
                         {Cadence::kGated, "gated"},
                         {Cadence::kBarrier, "barrier"}});
  expect_names<Arrival>({{Arrival::kDeadline, "deadline"}, {Arrival::kSkewed, "skewed"}, {Arrival::kFree, "free"}});
  expect_names<ClockKind>({{ClockKind::kHost, "host"}, {ClockKind::kEvent, "event"}});
  expect_names<Initiator>({{Initiator::kSender, "sender"}, {Initiator::kReceiver, "receiver"}});
  expect_names<StopRuleKind>(
      {{StopRuleKind::kCount, "count"}, {StopRuleKind::kInterval, "interval"}, {StopRuleKind::kDuration, "duration"}});
  expect_names<ReduceOp>({{ReduceOp::kSum, "sum"},
                          {ReduceOp::kProd, "prod"},
                          {ReduceOp::kMin, "min"},
                          {ReduceOp::kMax, "max"},
                          {ReduceOp::kAvg, "avg"}});
  expect_names<RuntimeKind>({{RuntimeKind::kHost, "host"},
                             {RuntimeKind::kCuda, "cuda"},
                             {RuntimeKind::kHip, "hip"},
                             {RuntimeKind::kSycl, "sycl"}});
  expect_names<MpiAbi>({{MpiAbi::kMpich, "mpich"}, {MpiAbi::kOpenMpi, "openmpi"}, {MpiAbi::kStandard, "standard"}});
  expect_names<MemoryKind>({{MemoryKind::kDevice, "device"},
                            {MemoryKind::kPinned, "pinned"},
                            {MemoryKind::kPageable, "pageable"},
                            {MemoryKind::kManaged, "managed"}});
  expect_names<ManagedUse>({{ManagedUse::kDefault, "default"},
                            {ManagedUse::kMigrate, "migrate"},
                            {ManagedUse::kZeroCopy, "zero_copy"},
                            {ManagedUse::kPrefetch, "prefetch"},
                            {ManagedUse::kPreferredDevice, "preferred_device"},
                            {ManagedUse::kPreferredHost, "preferred_host"},
                            {ManagedUse::kAccessedBy, "accessed_by"},
                            {ManagedUse::kReadMostly, "read_mostly"}});
}

// The parent process names them by number (run/wire/heartbeat.py).
TEST(Words, PhasesHaveTheNumbersOfTheHeartbeat) {
  const std::vector<std::pair<int, std::string>> expected = {
      {0, "idle"},   {1, "prepare"},  {2, "check"},       {3, "warmup"},  {4, "align"},    {5, "time"},
      {6, "record"}, {7, "finished"}, {8, "final_check"}, {9, "release"}, {10, "compile"}, {11, "others"}};
  for (const auto& [number, name] : expected) EXPECT_EQ(static_cast<int>(from_word<Moment>(name)), number) << name;
}

TEST(Words, DatatypesHaveOneNumberAndSizeInKernelsToo) {
  struct Row {
    Datatype value;
    unsigned number;
    const char* name;
    std::size_t bytes;
  };
  const std::vector<Row> expected = {{Datatype::kInt8, values::kInt8, "int8", 1},
                                     {Datatype::kUint8, values::kUint8, "uint8", 1},
                                     {Datatype::kInt32, values::kInt32, "int32", 4},
                                     {Datatype::kUint32, values::kUint32, "uint32", 4},
                                     {Datatype::kInt64, values::kInt64, "int64", 8},
                                     {Datatype::kUint64, values::kUint64, "uint64", 8},
                                     {Datatype::kFloat16, values::kFloat16, "float16", 2},
                                     {Datatype::kBfloat16, values::kBfloat16, "bfloat16", 2},
                                     {Datatype::kFloat32, values::kFloat32, "float32", 4},
                                     {Datatype::kFloat64, values::kFloat64, "float64", 8},
                                     {Datatype::kFloat8E4m3, values::kFloat8E4m3, "float8_e4m3", 1},
                                     {Datatype::kFloat8E5m2, values::kFloat8E5m2, "float8_e5m2", 1}};
  EXPECT_EQ(values::kDatatypeCount, expected.size());
  EXPECT_EQ(kNames<Datatype>.words.size(), expected.size());
  for (const Row& row : expected) {
    EXPECT_EQ(static_cast<unsigned>(row.value), row.number) << row.name;
    EXPECT_EQ(to_string(row.value), row.name);
    EXPECT_EQ(size_of(row.value), row.bytes) << row.name;
    EXPECT_EQ(values::element_bytes(row.number), row.bytes) << row.name;
  }
}

TEST(Words, AWrongNameIsRefusedWithThoseThereAre) {
  try {
    from_word<Cadence>("sometimes");
    ADD_FAILURE() << "no error";
  } catch (const CallerError& error) {
    EXPECT_STREQ(error.what(), "unknown cadence 'sometimes', expected one of: isolated, streaming, gated, barrier");
  }
  EXPECT_THROW(to_string(static_cast<Cadence>(9)), CallerError);
  EXPECT_EQ(listed(std::vector<int>{3, 1, 2}), "3, 1, 2");
  EXPECT_EQ(listed(std::vector<int>{}), "");
}

}  // namespace
}  // namespace linkgauge
