// One case as the core sees it: every dimension that changes what is run or how it is timed.
// Names are those of docs/definitions.md; src/linkgauge/plan/ makes these from plans and the bindings translate by
// name.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/datatype.h"
#include "base/memory_kind.h"
#include "base/patterns.h"
#include "base/words.h"

namespace linkgauge {

enum class Cadence : std::uint8_t { kIsolated, kStreaming, kGated, kBarrier };
template <>
inline constexpr auto kNames<Cadence> = names("cadence", "isolated", "streaming", "gated", "barrier");

enum class Arrival : std::uint8_t { kDeadline, kSkewed, kFree };
template <>
inline constexpr auto kNames<Arrival> = names("arrival", "deadline", "skewed", "free");

enum class ClockKind : std::uint8_t { kHost, kEvent };
template <>
inline constexpr auto kNames<ClockKind> = names("clock", "host", "event");

enum class Initiator : std::uint8_t { kSender, kReceiver };
template <>
inline constexpr auto kNames<Initiator> = names("initiator", "sender", "receiver");

enum class StopRuleKind : std::uint8_t { kCount, kInterval, kDuration };
template <>
inline constexpr auto kNames<StopRuleKind> = names("stop rule", "count", "interval", "duration");

// Names and values of "NAME=VALUE NAME=VALUE", in their order. Throws CallerError for a word that is none.
std::vector<std::pair<std::string, std::string>> settings_of(const std::string& text);

struct StopRuleSpec {
  StopRuleKind kind = StopRuleKind::kInterval;
  std::int64_t samples = 100;            // count: samples to take; interval: at most this many
  double relative_half_width = 0.025;    // interval: half width of the median's 95 % interval over the median
  std::int64_t time_ns = 1'000'000'000;  // every rule: no longer than this; duration: as long as this
};

// How a load spaces its operations: in bursts that are posted at once, completed, and follow each other at once, or not
// sooner than `every_ns` after the last one began, or so that they take a share `duty` of the time.
struct Pace {
  int burst = 0;  // operations; 0: as many as the case's batch
  std::int64_t every_ns = 0;
  double duty = 1;
  std::int64_t offset_ns = 0;  // so much later than it may it begins, also after each rest
};

struct Load;
struct Program;

// Who sends what to whom; pure: what core/traffic makes of it depends on nothing else but the number of ranks.
struct Traffic {
  Pattern pattern = Pattern::kPingpong;
  std::int64_t size_bytes = 0;  // m of docs/definitions.md, restated as whole blocks where the pattern cuts blocks
  int root = 0;
  int window = 1;
  Datatype datatype = Datatype::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
  std::string distribution = {};                // of alltoallv and halo (traffic/distribution.h); "" the default
  std::shared_ptr<const Program> program = {};  // of an application: this rank's part (traffic/program.h)

  // m as messages have it: something must tell of a barrier.
  std::size_t bytes() const {
    return size_bytes == 0 && pattern == Pattern::kBarrier ? 1 : static_cast<std::size_t>(size_bytes);
  }
};

struct End {
  MemoryKind kind = MemoryKind::kDevice;
  AllocateOptions options;
};

// Where: the ranks and devices that take part, and the memory that data lie in.
struct Places {
  std::vector<int> rank_list;  // ranks of the launch that take part, in the order of their place in the case: entry
                               // k plays rank k
  std::vector<int> devices;    // the device of each entry of rank_list
  int groups = 1;              // of equal size and consecutive ranks, which do the same side by side
  End source;
  End target;
  int source_device = -1;  // stream_copy: whose memory it reads; -1: each device its own
  int target_device = -1;  // stream_copy: whose memory it writes
};

// By what the bytes move. Settings of some mechanisms only stand beside each other, not in a variant: several serve one
// case (a pipelined copy's way and chunks, kernels beside staging), and a mechanism refuses by its value what it lacks.
struct Mechanism {
  std::string transport = {};  // staging, copy_engine, kernel, ccl, ucx, ofi, nixl, mpi
  std::string variant = {};    // of the transport; "" is its default
  Initiator initiator = Initiator::kSender;
  std::string path = {};       // direct, pcie, host; "" the library's default
  std::string buffer = {};     // ccl: plain, allocated, registered, symmetric; ucx, ofi: plain, registered; "" is plain
  std::string algorithm = {};  // "" the transport's default
  std::string settings = {};   // mpi, ucx: the library's own during this case, NAME=VALUE NAME=VALUE
  std::string host_leg = {};   // staging: "mpi" or "memcpy"
  std::int64_t chunk_bytes = 0;  // of pipelined variants, and of a descriptor of nixl; 0: chosen, a message each
  int blocks = 0;                // kernel, nvshmem's device: thread blocks; 0: chosen by measurement, or at most 64
  int via = -1;                  // routed copies: the device that data goes through
  ManagedUse managed = ManagedUse::kDefault;
  int cpu_node = -1;             // host_stream: the NUMA node whose cores move the bytes; -1: the device's
  std::string cpu_cores = {};    // host_stream: the cores that move them, as 0-3,8; "" those of cpu_node
  std::string collectives = {};  // of an application: the transport of its collectives; "" that of its messages
  std::string copies = {};       // of an application: by what they and stand-in kernels go: kernel; "" the copy engine
};

// How operations are started, timed and checked, and for how long.
struct Timing {
  Cadence cadence = Cadence::kIsolated;
  Arrival arrival = Arrival::kDeadline;
  std::int64_t skew_ns = 0;  // skewed: rank k arrives k * skew_ns after the deadline
  ClockKind clock = ClockKind::kHost;
  int batch = 20;           // operations queued in one streaming or gated sample
  std::int64_t warmup = 5;  // operations before the first sample (a sample's worth at least)
  StopRuleSpec stop;
  bool verify_each = false;  // every timed operation too
  std::int64_t checks = 0;   // operations that are checked and not timed, besides the first and the final one
  std::uint64_t seed = 0;    // of the case: data patterns
};

// What goes on beside the case.
struct Jobs {
  std::vector<Load> loads;   // jobs that go on beside this one, each on ranks of its own
  std::vector<int> lines;    // sockets to loads that are launches of their own, on the case's first rank; -1 elsewhere
  int kept = -1;             // a file to which this rank adds its samples, of a case with loads; -1: none
  std::optional<Pace> pace;  // this is such a load, beside another launch's case; the first of `lines` leads there
};

struct CaseSpec {
  Traffic traffic;
  Places places;
  Mechanism mechanism;
  Timing timing;
  Jobs jobs;
};

struct Load {
  CaseSpec spec;  // of its timing the batch and the seed alone count
  Pace pace;
};

}  // namespace linkgauge
