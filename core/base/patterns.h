// What is known of each pattern, a row each: no other place tells patterns apart by their order. A new one is a number
// and a row here, and, where it moves its bytes as none does, its steps (traffic/schedule.cpp) and layout
// (traffic/layout.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

#include "base/words.h"

namespace linkgauge {

enum class Pattern : std::uint8_t {
  kPingpong,
  kUnidirectional,
  kBidirectional,
  kPairsPingpong,  // ranks 0 and 1, 2 and 3, ... side by side
  kPairsUnidirectional,
  kPairsBidirectional,
  kRingShift,
  kOneToAll,
  kAllToOne,
  kAlltoall,
  kAllreduce,
  kAllgather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAlltoallv,
  kHalo,
  kBarrier,
  kHostToDevice,
  kDeviceToHost,
  kHostDeviceBidirectional,
  kHostToDeviceContended,  // one flow, timed alone, while others of twice the size keep on beside it
  kDeviceToHostContended,
  kLocalCopy,
  kStreamCopy,
  kHostStream,
  kPointerChase,
  kFlagPingpong,
  kEmptyOp,
  kApplication,
  kGemm,
};

enum class PatternKind : std::uint8_t {
  kMessages,    // between named ranks
  kCollective,  // of all of the case's ranks alike, or around a root
  kDevice,      // what each rank does with its own device
};

// Which ranks' clocks make the case's time (docs/definitions.md, table of patterns).
enum class Timekeeper : std::uint8_t { kStarter, kSender, kRoot, kLanes, kSlowest };

struct PatternTraits {
  Pattern pattern = Pattern::kPingpong;
  std::string_view name = "";
  PatternKind kind = PatternKind::kMessages;
  Timekeeper timekeeper = Timekeeper::kSlowest;
  std::optional<Pattern> as = std::nullopt;  // the pattern whose steps and layout it has, where it has none of its own
  bool one_pair = false;                     // of two ranks, or of one with itself
  bool side_by_side = false;                 // of disjoint pairs at once: ranks 0 and 1, 2 and 3, ...
  bool comes_back = false;                   // data goes from the one rank of a pair to the other and back
  bool cuts_blocks = false;                  // the size is of one block a rank
  bool reduces = false;                      // elements, of all ranks
  bool in_groups = false;                    // groups of the ranks can do it side by side
  bool mpi_call = false;                     // MPI has a call for it
  bool in_place = false;                     // has an in-place form
  bool routed = false;                       // its copies may go through a third device
  bool crosses_host_link = false;            // between a device's memory and the host's
  bool own_variants = false;                 // which it judges itself, in place of the transport's
};

namespace pattern_rows {

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

inline constexpr PatternTraits kTable[] = {
    row(Pattern::kPingpong, "pingpong", kMessages, kStarter, {.one_pair = true, .comes_back = true, .routed = true}),
    row(Pattern::kUnidirectional, "unidirectional", kMessages, kSender, {.one_pair = true, .routed = true}),
    row(Pattern::kBidirectional, "bidirectional", kMessages, kLanes,
        {.one_pair = true, .comes_back = true, .routed = true}),
    row(Pattern::kPairsPingpong, "pairs_pingpong", kMessages, kLanes,
        {.as = Pattern::kPingpong, .side_by_side = true, .comes_back = true}),
    row(Pattern::kPairsUnidirectional, "pairs_unidirectional", kMessages, kLanes,
        {.as = Pattern::kUnidirectional, .side_by_side = true}),
    row(Pattern::kPairsBidirectional, "pairs_bidirectional", kMessages, kLanes,
        {.as = Pattern::kBidirectional, .side_by_side = true, .comes_back = true}),
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
    row(Pattern::kHostDeviceBidirectional, "host_device_bidirectional", kDevice, kSlowest,
        {.crosses_host_link = true, .own_variants = true}),
    row(Pattern::kHostToDeviceContended, "host_to_device_contended", kDevice, kLanes,
        {.crosses_host_link = true, .own_variants = true}),
    row(Pattern::kDeviceToHostContended, "device_to_host_contended", kDevice, kLanes,
        {.crosses_host_link = true, .own_variants = true}),
    row(Pattern::kLocalCopy, "local_copy", kDevice, kLanes),
    row(Pattern::kStreamCopy, "stream_copy", kDevice, kSlowest),
    row(Pattern::kHostStream, "host_stream", kDevice, kLanes, {.own_variants = true}),
    row(Pattern::kPointerChase, "pointer_chase", kDevice, kLanes, {.own_variants = true}),
    row(Pattern::kFlagPingpong, "flag_pingpong", kDevice, kStarter, {.own_variants = true}),
    row(Pattern::kEmptyOp, "empty_op", kDevice, kLanes),
    row(Pattern::kApplication, "application", kMessages, kSlowest),
    row(Pattern::kGemm, "gemm", kDevice, kLanes),
};

constexpr bool in_order() {
  for (std::size_t number = 0; number < std::size(kTable); ++number) {
    if (kTable[number].pattern != static_cast<Pattern>(number)) return false;
  }
  return true;
}
static_assert(in_order(), "rows lie in the order of their numbers");

}  // namespace pattern_rows

constexpr std::span<const PatternTraits> all_patterns() { return pattern_rows::kTable; }

constexpr const PatternTraits& traits_of(Pattern pattern) {
  const auto number = static_cast<std::size_t>(pattern);
  if (number >= std::size(pattern_rows::kTable))
    throw CallerError("no pattern has the number " + std::to_string(number));
  return pattern_rows::kTable[number];
}

// The one whose steps and layout it has; mostly itself.
constexpr Pattern moves_as(Pattern pattern) { return traits_of(pattern).as.value_or(pattern); }

template <>
inline constexpr auto kNames<Pattern> = [] {
  Names<std::size(pattern_rows::kTable)> found{"pattern", {}};
  for (const PatternTraits& row : pattern_rows::kTable) found.words[static_cast<std::size_t>(row.pattern)] = row.name;
  return found;
}();

}  // namespace linkgauge
