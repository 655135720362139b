// NVSHMEM's copies between PEs, started by the host on a stream: by the source's rank (put) or the target's (get). What
// they reach is memory that NVSHMEM gave. A rank is one PE for the whole session.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "group/values.h"
#include "pattern/layout.h"
#include "pattern/operation.h"
#include "traffic/patterns.h"
#include "transport/nvshmem_pe.h"
#include "transport/one_sided.h"
#include "transport/transports.h"

namespace linkgauge {
namespace nvshmem {
namespace {

// Where a flow's copies begin or end at the rank that does not start them.
struct RemotePlace {
  std::int32_t source = 0;  // ranks of the case
  std::int32_t target = 0;
  std::int32_t pe = 0;
  std::uint64_t offset = 0;  // in what that PE reaches by its own calls
};

class StreamChannel final : public OneSidedChannel {
 public:
  // `own`: of this rank's buffer; `remote`: of the other's, as NVSHMEM names it here.
  StreamChannel(const RankContext& context, std::shared_ptr<Pe> pe, const FlowFlags& flags, Ends ends, std::byte* own,
                std::byte* remote, int remote_pe)
      : OneSidedChannel(context, flags, ends, {}),
        pe_(std::move(pe)),
        puts_(ends.sender_starts),
        own_(own),
        remote_(remote),
        remote_pe_(remote_pe),
        device_(context.device()) {
    if (starts()) stream_ = linkgauge::Stream(*context.runtime, device_);
  }

  std::vector<DeviceQueue> queues() const override {
    if (!starts()) return {};
    return {{stream_.handle(), device_}};
  }

 private:
  void start(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    if (puts_) {
      pe_->calls().nvshmemx_putmem_on_stream(remote_ + target_offset, own_ + source_offset, bytes, remote_pe_,
                                             stream_.handle());
    } else {
      pe_->calls().nvshmemx_getmem_on_stream(own_ + target_offset, remote_ + source_offset, bytes, remote_pe_,
                                             stream_.handle());
    }
  }
  void finish() override {
    if (puts_) pe_->calls().nvshmemx_quiet_on_stream(stream_.handle());  // a put alone says that the source may change
    stream_.synchronize();
  }

  std::shared_ptr<Pe> pe_;
  bool puts_;
  std::byte* own_;
  std::byte* remote_;
  int remote_pe_;
  int device_;
  linkgauge::Stream stream_;  // of the end that starts the copies
};

std::vector<std::unique_ptr<Channel>> stream_channels(const RankContext& context, const CaseSpec& spec,
                                                      const std::vector<Flow>& flows, const std::shared_ptr<Pe>& pe) {
  const bool puts = spec.variant != "get";
  std::vector<RemotePlace> mine;
  for (const Flow& flow : flows) {
    if ((puts ? flow.target : flow.source) != context.rank()) continue;
    const Buffer& exposed = puts ? *flow.target_buffer : *flow.source_buffer;
    mine.push_back({flow.source, flow.target, pe->number(), pe->offset_of(exposed.data())});
  }
  std::map<std::pair<int, int>, std::vector<RemotePlace>> places;  // the flows from one rank to another, in their order
  for (const std::vector<std::byte>& bytes : context.group->exchange(to_bytes(mine.data(), mine.size()), {})) {
    for (const RemotePlace& place : from_bytes<RemotePlace>(bytes)) {
      places[{place.source, place.target}].push_back(place);
    }
  }
  const std::vector<FlowFlags> flags = connect_flags(context, flows);
  std::vector<std::unique_ptr<Channel>> channels;
  std::map<std::pair<int, int>, std::size_t> numbers;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const Flow& flow = flows[i];
    const OneSidedChannel::Ends ends{flow.source == context.rank(), flow.target == context.rank(), puts,
                                     reads_what_arrives(spec.pattern)};
    const RemotePlace& place = places.at({flow.source, flow.target}).at(numbers[{flow.source, flow.target}]++);
    std::byte* const remote = pe->at(static_cast<std::size_t>(place.offset));
    const bool starts = puts ? ends.source : ends.target;
    std::byte* own = nullptr;
    if (starts) {
      own = (puts ? flow.source_buffer : flow.target_buffer)->at(0);
      const bool direct = pe->calls().nvshmem_ptr(remote, place.pe) != nullptr;
      context.choose("ways", direct ? "a peer's memory" : "its remote transport");
    }
    channels.push_back(std::make_unique<StreamChannel>(context, pe, flags[i], ends, own, remote, place.pe));
  }
  return channels;
}

}  // namespace
}  // namespace nvshmem

namespace {

class NvshmemTransport final : public Transport {
 public:
  std::string_view name() const override { return "nvshmem"; }
  bool one_sided() const override { return true; }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    if (!spec.variant.empty() && spec.variant != "put" && spec.variant != "get") {
      return "nvshmem has no variant '" + spec.variant + "'; its variants are put and get";
    }
    if (!spec.algorithm.empty()) return "nvshmem has no algorithm '" + spec.algorithm + "'; leave --algorithm out";
    if (spec.via >= 0) return "NVSHMEM chooses its own path; leave --via out";
    if (std::string reason = why_no_pe(context); !reason.empty()) return reason;
    if (spec.source_memory != MemoryKind::kDevice || spec.target_memory != MemoryKind::kDevice) {
      return "NVSHMEM's memory is the devices'; leave --source-memory and --target-memory out";
    }
    if (traits_of(spec.pattern).kind == PatternKind::kDevice) {
      return "nvshmem moves messages between ranks, of which " + std::string(to_string(spec.pattern)) + " has none";
    }
    if (spec.pattern == Pattern::kApplication && spec.collectives.empty()) {
      return "nvshmem carries an application's messages; name what carries its collectives, as in --collectives ccl";
    }
    const auto known = context.lasting->find(kKept);
    return known == context.lasting->end() ? "" : static_cast<nvshmem::Pe*>(known->second.get())->why_not();
  }

  void meet(const RankContext& launch, const CaseSpec& spec, int rank) override {
    if (!(*launch.lasting)[kKept]) (*launch.lasting)[kKept] = std::make_shared<nvshmem::Pe>();
    const int ranks = static_cast<int>(spec.rank_list.size());
    pe_of(launch)->meet(launch, rank < 0 ? std::vector<std::size_t>{} : lent_sizes(spec, ranks, rank),
                        why_no_pe(launch));
  }

  Buffer make_buffer(const RankContext& context, const CaseSpec&, MemoryKind, std::size_t bytes,
                     const AllocateOptions&) const override {
    return pe_of(context)->take(bytes);
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const std::vector<Flow>& flows) override {
    return nvshmem::stream_channels(context, spec, flows, pe_of(context));
  }

  std::unique_ptr<Operation> collective(const RankContext&, const CaseSpec&) override { return nullptr; }
  Progress progress(const RankContext&) override { return {}; }

 private:
  static constexpr const char* kKept = "nvshmem";

  static std::shared_ptr<nvshmem::Pe> pe_of(const RankContext& context) {
    return std::static_pointer_cast<nvshmem::Pe>(context.lasting->at(kKept));
  }

  static std::string why_no_pe(const RankContext& context) {
    if (context.runtime->name() != "cuda") {
      return "nvshmem moves data between NVIDIA GPUs: these are " + std::string(context.runtime->name()) + " devices";
    }
    if (context.group->one_process()) return "NVSHMEM has one PE a process; leave out --threads";
    if (context.group->node_count() > 1) return "nvshmem is measured within one node";
    try {
      (void)nvshmem::Library::load(context.libraries.folders);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  }
};

}  // namespace

std::unique_ptr<Transport> make_nvshmem_transport() { return std::make_unique<NvshmemTransport>(); }

}  // namespace linkgauge
