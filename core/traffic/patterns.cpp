#include "traffic/patterns.h"

#include <iterator>
#include <string>

#include "errors.h"

namespace linkgauge {
namespace {

constexpr auto kMessages = PatternKind::kMessages;
constexpr auto kCollective = PatternKind::kCollective;
constexpr auto kDevice = PatternKind::kDevice;
constexpr auto kStarter = Timekeeper::kStarter;
constexpr auto kSender = Timekeeper::kSender;
constexpr auto kRoot = Timekeeper::kRoot;
constexpr auto kLanes = Timekeeper::kLanes;
constexpr auto kSlowest = Timekeeper::kSlowest;

constexpr PatternTraits row(Pattern pattern, std::string_view name, PatternKind kind, Timekeeper timekeeper,
                            PatternTraits more = {}) {
  more.pattern = pattern;
  more.name = name;
  more.kind = kind;
  more.timekeeper = timekeeper;
  return more;
}

constexpr PatternTraits kTable[] = {
    row(Pattern::kPingpong, "pingpong", kMessages, kStarter, {.one_pair = true, .comes_back = true, .routed = true}),
    row(Pattern::kUnidirectional, "unidirectional", kMessages, kSender, {.one_pair = true, .routed = true}),
    row(Pattern::kBidirectional, "bidirectional", kMessages, kLanes,
        {.one_pair = true, .comes_back = true, .routed = true}),
    row(Pattern::kPairsPingpong, "pairs_pingpong", kMessages, kLanes, {.side_by_side = true, .comes_back = true}),
    row(Pattern::kPairsUnidirectional, "pairs_unidirectional", kMessages, kLanes, {.side_by_side = true}),
    row(Pattern::kPairsBidirectional, "pairs_bidirectional", kMessages, kLanes,
        {.side_by_side = true, .comes_back = true}),
    row(Pattern::kRingShift, "ring_shift", kMessages, kSlowest, {.in_groups = true, .routed = true}),
    row(Pattern::kOneToAll, "one_to_all", kMessages, kRoot, {.in_groups = true}),
    row(Pattern::kAllToOne, "all_to_one", kMessages, kRoot, {.in_groups = true}),
    row(Pattern::kAlltoall, "alltoall", kCollective, kSlowest, {.in_groups = true, .mpi_call = true}),
    row(Pattern::kAllreduce, "allreduce", kCollective, kSlowest,
        {.reduces = true, .in_groups = true, .mpi_call = true, .in_place = true}),
    row(Pattern::kAllgather, "allgather", kCollective, kSlowest,
        {.cuts_blocks = true, .in_groups = true, .mpi_call = true, .in_place = true}),
    row(Pattern::kReduceScatter, "reduce_scatter", kCollective, kSlowest,
        {.cuts_blocks = true, .reduces = true, .in_groups = true, .mpi_call = true, .in_place = true}),
    row(Pattern::kBroadcast, "broadcast", kCollective, kSlowest,
        {.in_groups = true, .mpi_call = true, .in_place = true}),
    row(Pattern::kReduce, "reduce", kCollective, kSlowest,
        {.reduces = true, .in_groups = true, .mpi_call = true, .in_place = true}),
    row(Pattern::kGather, "gather", kCollective, kSlowest,
        {.cuts_blocks = true, .in_groups = true, .mpi_call = true, .in_place = true}),
    row(Pattern::kScatter, "scatter", kCollective, kSlowest,
        {.cuts_blocks = true, .in_groups = true, .mpi_call = true, .in_place = true}),
    row(Pattern::kAlltoallv, "alltoallv", kCollective, kSlowest, {.in_groups = true, .mpi_call = true}),
    row(Pattern::kHalo, "halo", kMessages, kSlowest, {.in_groups = true}),
    row(Pattern::kBarrier, "barrier", kCollective, kSlowest, {.in_groups = true, .mpi_call = true}),
    row(Pattern::kHostToDevice, "host_to_device", kDevice, kSlowest, {.crosses_host_link = true}),
    row(Pattern::kDeviceToHost, "device_to_host", kDevice, kSlowest, {.crosses_host_link = true}),
    row(Pattern::kHostDeviceBoth, "host_device_both", kDevice, kSlowest, {.crosses_host_link = true}),
    row(Pattern::kHostToDeviceBeside, "host_to_device_beside", kDevice, kLanes, {.crosses_host_link = true}),
    row(Pattern::kDeviceToHostBeside, "device_to_host_beside", kDevice, kLanes, {.crosses_host_link = true}),
    row(Pattern::kLocalCopy, "local_copy", kDevice, kLanes),
    row(Pattern::kStreamCopy, "stream_copy", kDevice, kSlowest),
    row(Pattern::kCpuStream, "cpu_stream", kDevice, kLanes),
    row(Pattern::kChase, "chase", kDevice, kLanes),
    row(Pattern::kFlagPingpong, "flag_pingpong", kDevice, kStarter),
    row(Pattern::kFloor, "floor", kDevice, kLanes),
    row(Pattern::kApplication, "application", kMessages, kSlowest),
    row(Pattern::kGemm, "gemm", kDevice, kLanes),
};

// Rows lie in the order of their numbers.
constexpr bool in_order() {
  for (std::size_t number = 0; number < std::size(kTable); ++number) {
    if (kTable[number].pattern != static_cast<Pattern>(number)) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const PatternTraits> all_patterns() { return kTable; }

const PatternTraits& traits_of(Pattern pattern) {
  const auto number = static_cast<std::size_t>(pattern);
  if (number >= std::size(kTable)) throw CallerError("no row for pattern number " + std::to_string(number));
  return kTable[number];
}

Pattern pattern_from(std::string_view word) {
  std::string expected;
  for (const PatternTraits& row : kTable) {
    if (row.name == word) return row.pattern;
    expected += (expected.empty() ? "" : ", ") + std::string(row.name);
  }
  throw CallerError("unknown pattern '" + std::string(word) + "', expected one of: " + expected);
}

std::string_view to_string(Pattern value) { return traits_of(value).name; }

}  // namespace linkgauge
