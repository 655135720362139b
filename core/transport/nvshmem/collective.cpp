#include "transport/nvshmem/collective.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/now.h"
#include "base/patterns.h"
#include "base/wire.h"
#include "base/words.h"
#include "transport/agreement.h"
#include "transport/buffered_operation.h"
#include "transport/device_pattern.h"
#include "transport/nvshmem/kernels.h"

namespace linkgauge::nvshmem {
namespace {

constexpr std::int64_t kEvenOutPatienceNs = 5'000'000'000;  // all come as soon as they hear of a failure
constexpr int kCommandsBeside = 8;  // of one call on its stream: a kernel, waits for NVSHMEM's streams, copies

LayoutRules rules_of(Pattern pattern) {
  return {.own_block = pattern == Pattern::kAlltoall, .no_bytes = pattern == Pattern::kBarrier};
}

// The function that the host calls; "": NVSHMEM has none.
std::string call_of(const Traffic& traffic) {
  const std::string name = collective_name(traffic.pattern);
  if (name.empty()) return "";
  if (traffic.pattern == Pattern::kBarrier) return "nvshmemx_barrier_on_stream";
  if (!traits_of(traffic.pattern).reduces) return "nvshmemx_" + name + "mem_on_stream";
  return "nvshmemx_" + std::string(names_of(traffic.datatype).word) + "_" + std::string(to_string(traffic.op)) + "_" +
         name + "_on_stream";
}

// Of a variable of NVSHMEM's, which has a number and perhaps a unit.
std::uint64_t bytes_of(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t unit = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*end))));
  const double scale =
      *end == '\0' || unit == std::string_view::npos ? 1 : std::ldexp(1, 10 * (static_cast<int>(unit) + 1));
  return number > 0 ? static_cast<std::uint64_t>(number * scale) : 0;
}

// What it does beyond these, in 3.4.5 and 3.8.0: a reduce-scatter without multicast ends in an assertion on the device,
// and blocks are put where an int of 32 bits comes round to.
std::string why_not_so_large(const Traffic& traffic, int ranks) {
  constexpr std::uint64_t kScratchBytes = std::uint64_t{1} << 19;
  constexpr std::uint64_t kMostOffset = std::numeric_limits<std::int32_t>::max();
  const std::uint64_t room = bytes_of("NVSHMEM_REDUCE_SCRATCH_SIZE", kScratchBytes) / 2;
  if (traffic.pattern == Pattern::kReduceScatter && traffic.bytes() > room) {
    return "NVSHMEM's reducescatter has room for " + std::to_string(room) +
           " bytes of all blocks, half of NVSHMEM_REDUCE_SCRATCH_SIZE; --env NVSHMEM_REDUCE_SCRATCH_SIZE=" +
           std::to_string(2 * traffic.bytes()) + " gives it room for this case's";
  }
  const bool moves_blocks = traffic.pattern == Pattern::kAlltoall || traffic.pattern == Pattern::kAllgather;
  if (moves_blocks && static_cast<std::uint64_t>(ranks - 1) * block_bytes(traffic, ranks) > kMostOffset)
    return "NVSHMEM's alltoall and fcollect reach no block that begins beyond 2 GiB of a buffer";
  return "";
}

// Where a rank's buffers and words lie in what its PE lends.
struct Lent {
  std::uint64_t target = 0;
  std::uint64_t source = 0;
  std::uint64_t words = 0;
  std::int32_t pe = 0;
  std::int32_t unused = 0;
};

// A call ends on a rank's stream when that rank has what it receives and its operand may change, as NCCL's does. Of
// buffers NVSHMEM wants the same place on all PEs. One that not all ranks of the team have queued never ends.
class Collective final : public BufferedOperation {
 public:
  Collective(Transport& transport, const RankContext& context, const CaseSpec& spec, const Options& options,
             std::shared_ptr<Pe> pe)
      : BufferedOperation(transport, context, spec, rules_of(spec.traffic.pattern)),
        pe_(std::move(pe)),
        by_kernel_(options.by_kernels()),
        call_(call_of(spec.traffic)) {}

  void post() override {
    queue();
    ++posted_;
  }
  void complete() override { wait_for_stream(runtime(), stream_.handle(), group()); }
  std::int64_t steps() const override { return static_cast<std::int64_t>(rounds()); }
  std::vector<DeviceQueue> queues() const override { return {{stream_.handle(), context().device()}}; }
  int commands_per_post() const override { return by_kernel_ ? 1 : kCommandsBeside + ranks(); }

 private:
  std::uint64_t rounds() const { return by_kernel_ && traffic().pattern == Pattern::kBarrier ? kRoundsOfLaunch : 1; }

  void connect() override {
    runtime().bind_thread(context().device());
    team_ = pe_->team_of(range_of(spec().places.rank_list));
    agreeing(group(), {}, [&] {
      stream_ = linkgauge::Stream(runtime(), context().device());
      side_ = linkgauge::Stream(runtime(), context().device());
      words_ = pe_->take(static_cast<std::size_t>(ranks()) * sizeof(Signal));
      const std::vector<Signal> zeros(static_cast<std::size_t>(ranks()));
      runtime().copy_now(words_.data(), context().device(), zeros.data(), -1, words_.size());
    });
    if (by_kernel_) {
      kernel_ = &pe_->load_collective(context(), collective_code(traffic().pattern, traffic().datatype, traffic().op));
      context().choose("grid", CollectiveKernel::shape().grid());
    } else if (traits_of(traffic().pattern).reduces) {
      reduction_ = reinterpret_cast<Reduction*>(pe_->library().find(call_));
    }
    const Buffer* const target_buffer = target() != nullptr ? target() : source();  // a root sends from where it is
    const Buffer* const source_buffer = source() != nullptr ? source() : target();
    if (target_buffer != nullptr) target_data_ = target_buffer->data();
    if (source_buffer != nullptr) source_data_ = source_buffer->data();
    meet_peers();
  }

  void meet_peers() {
    Lent mine;
    if (target_data_ != nullptr) mine.target = pe_->offset_of(target_data_);
    if (source_data_ != nullptr) mine.source = pe_->offset_of(source_data_);
    mine.words = pe_->offset_of(words_.data());
    mine.pe = pe_->number();
    peers_.clear();
    for (const std::vector<std::byte>& bytes : group().exchange(to_bytes(&mine, 1), {}))
      peers_.push_back(from_bytes<Lent>(bytes));
    for (std::size_t other = 0; other < peers_.size(); ++other) {
      const Lent& lent = peers_[other];
      if (lent.target != peers_[0].target || lent.source != peers_[0].source || lent.words != peers_[0].words)
        throw Error("rank " + std::to_string(other) + "'s buffers lie elsewhere in NVSHMEM's memory than rank 0's");
      if (static_cast<int>(other) == rank()) continue;
      context().choose("ways", pe_->way_to(lent.words, lent.pe));
    }
    tell_peers(0);  // so that what tells them of a failure is on the device before anything waits there
    side_.synchronize();
  }

  void queue() {
    const std::size_t element = size_of(traffic().datatype);
    const std::size_t bytes = block_bytes(traffic(), ranks());
    const bool reduces = traits_of(traffic().pattern).reduces;
    StreamHandle stream = stream_.handle();
    if (kernel_ != nullptr) {
      const std::size_t count = reduces ? bytes / element : bytes;
      return kernel_->run(team_, target_data_, source_data_, count, traffic().root, rounds(), stream);
    }
    const Table& calls = pe_->calls();
    switch (traffic().pattern) {
      case Pattern::kBarrier:
        return check(calls.nvshmemx_barrier_on_stream(team_, stream));
      case Pattern::kAlltoall:
        return check(calls.nvshmemx_alltoallmem_on_stream(team_, target_data_, source_data_, bytes, stream));
      case Pattern::kAllgather:
        return check(calls.nvshmemx_fcollectmem_on_stream(team_, target_data_, source_data_, bytes, stream));
      case Pattern::kBroadcast:
        return check(
            calls.nvshmemx_broadcastmem_on_stream(team_, target_data_, source_data_, bytes, traffic().root, stream));
      default:
        return check(reduction_(team_, target_data_, source_data_, bytes / element, stream));
    }
  }
  void check(Status status) { pe_->library().check(status, call_.c_str(), context().device()); }

  // Only now may peers have begun.
  void enter_device() override { filled_ = true; }

  void disconnect() noexcept override {
    if (filled_ && group().aborted()) even_out();
    kernel_ = nullptr;
    stream_ = linkgauge::Stream();
    side_ = linkgauge::Stream();
  }
  void free_scratch() noexcept override { words_ = Buffer(); }

  void tell_peers(Signal value) {
    for (std::size_t other = 0; other < peers_.size(); ++other) {
      if (static_cast<int>(other) == rank()) continue;
      auto* const word = static_cast<Signal*>(words_.data()) + rank();
      pe_->calls().nvshmemx_signal_op_on_stream(word, value, kAdd, peers_[other].pe, side_.handle());
    }
  }

  // After a failure: whoever has queued fewer than another queues what lacks, so that no device waits for ever and the
  // team can serve the next case. Where one cannot, the wait for its stream lasts until the launch is ended.
  void even_out() noexcept {
    try {
      tell_peers(posted_ + 1);
      const std::int64_t until_ns = now_ns() + kEvenOutPatienceNs;
      std::vector<Signal> told(peers_.size());
      while (std::find(told.begin(), told.end(), 0U) != told.end()) {
        if (now_ns() > until_ns) return;
        runtime().copy_now(told.data(), -1, words_.data(), context().device(), words_.size());
        told[static_cast<std::size_t>(rank())] = posted_ + 1;
        std::this_thread::yield();
      }
      const Signal most = *std::max_element(told.begin(), told.end());
      while (posted_ + 1 < most) post();
      stream_.synchronize();
    } catch (const Error&) {  // the device is gone, and what waits there with it
    }
  }

  std::shared_ptr<Pe> pe_;
  bool by_kernel_;
  std::string call_;
  Team team_ = kNoTeam;
  Reduction* reduction_ = nullptr;
  const CollectiveKernel* kernel_ = nullptr;
  void* target_data_ = nullptr;
  void* source_data_ = nullptr;
  Buffer words_;  // of each rank how many it has queued, and one more, where one failed
  std::vector<Lent> peers_;
  linkgauge::Stream stream_;
  linkgauge::Stream side_;
  Signal posted_ = 0;
  bool filled_ = false;
};

}  // namespace

std::string why_not_collective(const CaseSpec& spec, const Options& options, const Library& library) {
  const Traffic& traffic = spec.traffic;
  const std::string call = call_of(traffic);
  if (call.empty()) {
    return "NVSHMEM has collectives for alltoall, allgather, allreduce, reduce_scatter, broadcast and barrier, not "
           "for " +
           std::string(to_string(traffic.pattern)) + "; leave --variant " + spec.mechanism.variant + " out";
  }
  const bool gathers = traffic.pattern == Pattern::kAllgather || traffic.pattern == Pattern::kReduceScatter;
  if (traffic.in_place && gathers)
    return "NVSHMEM's fcollect and reducescatter have no in-place form; leave --in-place out";
  if (traits_of(traffic.pattern).reduces) {
    if (names_of(traffic.datatype).word.empty())
      return "NVSHMEM reduces no " + std::string(to_string(traffic.datatype));
    if (traffic.op == ReduceOp::kAvg) return "NVSHMEM has no avg; its operations are sum, prod, min and max";
  }
  if (range_of(spec.places.rank_list).size == 0) {
    return "NVSHMEM's teams are of PEs in rising order, all as far apart; ranks " + listed(spec.places.rank_list) +
           " of the launch are not";
  }
  const auto ranks = static_cast<int>(spec.places.rank_list.size());
  if (std::string reason = why_not_so_large(traffic, ranks); !reason.empty()) return reason;
  if (!options.by_kernels() && library.find(call) == nullptr)
    return "NVSHMEM " + library.version() + " at " + library.path() + " lacks " + call;
  return "";
}

std::vector<std::size_t> collective_sizes(const CaseSpec& spec, int ranks, int rank) {
  std::vector<std::size_t> sizes{static_cast<std::size_t>(ranks) * sizeof(Signal)};
  if (call_of(spec.traffic).empty() || !why_not_laid_out(spec, ranks).empty()) return sizes;
  const Layout layout = layout_of(spec.traffic, ranks, rank, rules_of(spec.traffic.pattern));
  sizes.push_back(layout.target_bytes);
  if (!layout.one_buffer) sizes.push_back(layout.source_bytes);
  return sizes;
}

std::unique_ptr<Operation> make_collective(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                           const Options& options, std::shared_ptr<Pe> pe) {
  return std::make_unique<Collective>(transport, context, spec, options, std::move(pe));
}

}  // namespace linkgauge::nvshmem
