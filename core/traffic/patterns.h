// What is known of each pattern, a row each: no other place tells patterns apart by their order.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "case_spec.h"

namespace linkgauge {

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
  bool one_pair = false;           // of two ranks, or of one with itself
  bool side_by_side = false;       // of disjoint pairs at once: ranks 0 and 1, 2 and 3, ...
  bool comes_back = false;         // data goes from the one rank of a pair to the other and back
  bool cuts_blocks = false;        // the size is of one block a rank
  bool reduces = false;            // elements, of all ranks
  bool in_groups = false;          // groups of the ranks can do it side by side
  bool mpi_call = false;           // MPI has a call for it
  bool in_place = false;           // has an in-place form
  bool routed = false;             // its copies may go through a third device
  bool crosses_host_link = false;  // between a device's memory and the host's
  bool own_variants = false;       // which it judges itself, in place of the transport's
};

std::span<const PatternTraits> all_patterns();
const PatternTraits& traits_of(Pattern pattern);

}  // namespace linkgauge
