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

#include "memory_kind.h"
#include "patterns.h"

namespace linkgauge {

enum class Cadence : std::uint8_t { kIsolated, kStreaming, kGated, kBarrier };
enum class Arrival : std::uint8_t { kDeadline, kSkewed, kFree };
enum class ClockKind : std::uint8_t { kHost, kEvent };
enum class Datatype : std::uint8_t {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kFloat8E4m3,
  kFloat8E5m2,
};
enum class ReduceOp : std::uint8_t { kSum, kProd, kMin, kMax, kAvg };
enum class Initiator : std::uint8_t { kSender, kReceiver };
enum class StopRuleKind : std::uint8_t { kCount, kInterval, kDuration };

// Each throws CallerError naming the word and those expected.
void from_word(std::string_view word, Cadence& value);
void from_word(std::string_view word, Arrival& value);
void from_word(std::string_view word, ClockKind& value);
void from_word(std::string_view word, Datatype& value);  // "float32", "bfloat16", "float8_e4m3", ...
void from_word(std::string_view word, ReduceOp& value);
void from_word(std::string_view word, Initiator& value);
void from_word(std::string_view word, StopRuleKind& value);
std::string_view to_string(Datatype value);
std::string_view to_string(ReduceOp value);
std::size_t size_of(Datatype value);  // bytes of one element

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

struct CaseSpec {
  std::string transport;  // staging, copy_engine, kernel, ccl, ucx, ofi, nixl, mpi
  std::string variant;    // of the transport; "" is its default
  Pattern pattern = Pattern::kPingpong;
  std::int64_t size_bytes = 0;  // m of docs/definitions.md, restated as whole blocks where the pattern cuts blocks
  MemoryKind source_memory = MemoryKind::kDevice;
  MemoryKind target_memory = MemoryKind::kDevice;
  AllocateOptions source_options;
  AllocateOptions target_options;
  std::vector<int> rank_list;  // ranks of the launch that take part, in the order of their place in the case: entry
                               // k plays rank k
  std::vector<int> devices;    // the device of each entry of rank_list
  int groups = 1;              // of equal size and consecutive ranks, which do the same side by side
  Cadence cadence = Cadence::kIsolated;
  Arrival arrival = Arrival::kDeadline;
  std::int64_t skew_ns = 0;  // skewed: rank k arrives k * skew_ns after the deadline
  ClockKind clock = ClockKind::kHost;
  int window = 1;
  int batch = 20;  // operations queued in one streaming or gated sample
  int root = 0;
  Datatype datatype = Datatype::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
  std::string distribution;  // of alltoallv and halo (traffic/distribution.h); "" the default
  std::string path;          // direct, pcie, host; "" the library's default
  std::string buffer;        // ccl: plain, allocated, registered, symmetric; ucx, ofi: plain, registered; "" is plain
  std::string algorithm;     // "" the transport's default
  std::string settings;      // mpi, ucx: the library's own during this case, NAME=VALUE NAME=VALUE
  Initiator initiator = Initiator::kSender;
  std::string host_leg;  // staging: "mpi" or "memcpy"
  std::int64_t chunk_bytes =
      0;           // pipelined variants; 0: chosen by the transport. nixl: of a descriptor; 0: a message each
  int blocks = 0;  // kernel, nvshmem's device: thread blocks; 0: chosen by measurement, or at most 64
  ManagedUse managed = ManagedUse::kDefault;
  int source_device = -1;  // stream_copy: whose memory it reads; -1: each device its own
  int target_device = -1;  // stream_copy: whose memory it writes
  int cpu_node = -1;       // cpu_stream: the NUMA node whose cores move the bytes; -1: the device's
  std::string cpu_cores;   // cpu_stream: the cores that move them, as 0-3,8; "" those of cpu_node
  int via = -1;            // routed copies: the device that data goes through
  bool verify_each = false;
  std::uint64_t seed = 0;   // of the case: data patterns
  std::int64_t warmup = 5;  // operations before the first sample (a sample's worth at least)
  StopRuleSpec stop;
  std::string collectives;  // of an application: the transport of its collectives; "" that of its messages
  std::string copies;       // of an application: by what they and stand-in kernels go: kernel; "" the copy engine
  std::shared_ptr<const Program> program;  // of an application: this rank's part (traffic/program.h)
  std::vector<Load> loads;                 // jobs that go on beside this one, each on ranks of its own
  std::vector<int> lines;    // sockets to loads that are launches of their own, on the case's first rank; -1 elsewhere
  int kept = -1;             // a file to which this rank adds its samples, of a case with loads; -1: none
  std::optional<Pace> pace;  // this is such a load, beside another launch's case; the first of `lines` leads there
};

struct Load {
  CaseSpec spec;  // its cadence, arrival, clock and stop rule say nothing
  Pace pace;
};

// Every field of a case under the name that callers give it: an array of make<&CaseSpec::field>("field"), of which the
// bindings read dicts.
template <typename Make>
constexpr auto case_fields(const Make& make) {
  return std::array{
      make.template operator()<&CaseSpec::transport>("transport"),
      make.template operator()<&CaseSpec::variant>("variant"),
      make.template operator()<&CaseSpec::pattern>("pattern"),
      make.template operator()<&CaseSpec::size_bytes>("size_bytes"),
      make.template operator()<&CaseSpec::source_memory>("source_memory"),
      make.template operator()<&CaseSpec::target_memory>("target_memory"),
      make.template operator()<&CaseSpec::source_options>("source_options"),
      make.template operator()<&CaseSpec::target_options>("target_options"),
      make.template operator()<&CaseSpec::rank_list>("rank_list"),
      make.template operator()<&CaseSpec::groups>("groups"),
      make.template operator()<&CaseSpec::devices>("devices"),
      make.template operator()<&CaseSpec::cadence>("cadence"),
      make.template operator()<&CaseSpec::arrival>("arrival"),
      make.template operator()<&CaseSpec::skew_ns>("skew_ns"),
      make.template operator()<&CaseSpec::clock>("clock"),
      make.template operator()<&CaseSpec::window>("window"),
      make.template operator()<&CaseSpec::batch>("batch"),
      make.template operator()<&CaseSpec::root>("root"),
      make.template operator()<&CaseSpec::datatype>("datatype"),
      make.template operator()<&CaseSpec::op>("op"),
      make.template operator()<&CaseSpec::in_place>("in_place"),
      make.template operator()<&CaseSpec::distribution>("distribution"),
      make.template operator()<&CaseSpec::path>("path"),
      make.template operator()<&CaseSpec::algorithm>("algorithm"),
      make.template operator()<&CaseSpec::buffer>("buffer"),
      make.template operator()<&CaseSpec::initiator>("initiator"),
      make.template operator()<&CaseSpec::host_leg>("host_leg"),
      make.template operator()<&CaseSpec::chunk_bytes>("chunk_bytes"),
      make.template operator()<&CaseSpec::blocks>("blocks"),
      make.template operator()<&CaseSpec::managed>("managed"),
      make.template operator()<&CaseSpec::source_device>("source_device"),
      make.template operator()<&CaseSpec::target_device>("target_device"),
      make.template operator()<&CaseSpec::cpu_node>("cpu_node"),
      make.template operator()<&CaseSpec::cpu_cores>("cpu_cores"),
      make.template operator()<&CaseSpec::via>("via"),
      make.template operator()<&CaseSpec::verify_each>("verify_each"),
      make.template operator()<&CaseSpec::seed>("seed"),
      make.template operator()<&CaseSpec::warmup>("warmup"),
      make.template operator()<&CaseSpec::stop>("stop"),
      make.template operator()<&CaseSpec::settings>("settings"),
      make.template operator()<&CaseSpec::collectives>("collectives"),
      make.template operator()<&CaseSpec::copies>("copies"),
      make.template operator()<&CaseSpec::program>("program"),
      make.template operator()<&CaseSpec::loads>("loads"),
      make.template operator()<&CaseSpec::lines>("lines"),
      make.template operator()<&CaseSpec::kept>("kept"),
      make.template operator()<&CaseSpec::pace>("pace"),
  };
}

}  // namespace linkgauge
