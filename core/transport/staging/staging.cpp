// Through host memory by explicit copies: device to host, the host leg (MPI, or memcpy between ranks of one node), host
// to device. Collectives are one copy down, the MPI library's own collective on host buffers, and one copy up (SC'24's
// baseline), unless they are composed.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/patterns.h"
#include "mpi/collective.h"
#include "transport/agreement.h"
#include "transport/buffered_operation.h"
#include "transport/options.h"
#include "transport/peer_memory.h"
#include "transport/registry.h"
#include "transport/staging/channel.h"

namespace linkgauge {
namespace {

constexpr std::size_t kPipelineChunkBytes = std::size_t{512} << 10;
constexpr std::uint64_t kPipelineSlots = 4;
constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;

enum class StagingVariant : std::uint8_t { kStoreAndForward, kPipelined, kPageable, kComposed };
constexpr VariantWord<StagingVariant> kStagingWords[] = {
    {"store_and_forward", StagingVariant::kStoreAndForward},
    {"pipelined", StagingVariant::kPipelined},
    {"pageable", StagingVariant::kPageable},
    {"composed", StagingVariant::kComposed},
};
constexpr Variants<StagingVariant> kStagingVariants{"staging", kStagingWords};

MemoryKind staging_kind(StagingVariant variant) {
  return variant == StagingVariant::kPageable ? MemoryKind::kPageable : MemoryKind::kPinned;
}

enum class HostLegBy : std::uint8_t { kMpi, kMemcpy };
// Nothing where the case names none that there is.
std::optional<HostLegBy> host_leg_of(const RankContext& context, const Mechanism& by) {
  if (by.host_leg.empty()) return context.mpi != nullptr ? HostLegBy::kMpi : HostLegBy::kMemcpy;
  if (by.host_leg == "mpi") return HostLegBy::kMpi;
  if (by.host_leg == "memcpy") return HostLegBy::kMemcpy;
  return {};
}

// Of a flow's slots: no two flows write to one cache line, nor large ones to one page.
std::size_t slots_bytes(const StagingShape& shape) {
  const std::size_t bytes = shape.slots * shape.chunk_bytes;
  const std::size_t unit = bytes < kPage ? kLine : kPage;
  return (bytes + unit - 1) / unit * unit;
}

// Where the slots of this rank's messages lie in the memory that peers open: behind a table of where those to each
// rank begin, one flow's after the other. So each rank is told of one piece of memory, and of no single flow.
struct SourceSlots {
  std::vector<std::uint64_t> table;
  std::vector<std::size_t> places;  // by flow
  std::size_t bytes = 0;            // 0 where the rank sends nothing
};

// Pieces that lie side by side are one copy.
std::vector<Piece> joined(const std::vector<Piece>& pieces) {
  std::vector<Piece> result;
  for (const Piece& piece : pieces) {
    if (!result.empty() && result.back().offset + result.back().bytes == piece.offset) {
      result.back().bytes += piece.bytes;
    } else {
      result.push_back(piece);
    }
  }
  return result;
}

class StagedCollective final : public BufferedOperation {
 public:
  StagedCollective(Transport& transport, const RankContext& context, const CaseSpec& spec, MemoryKind kind)
      : BufferedOperation(transport, context, spec, mpi_layout_rules(spec.traffic)),
        kind_(kind),
        call_(*context.mpi, context.communicator, spec.traffic, context.size(), context.rank()),
        sent_(joined(layout().sent)),
        received_(joined(layout().received)) {}

  // The steps depend on each other and the library's call blocks, so an iteration is over when post() returns.
  void post() override {
    for (const Piece& piece : sent_) {
      runtime().copy_async(down()->at(piece.offset), -1, source()->at(piece.offset), source()->copy_device(),
                           piece.bytes, stream_.handle());
    }
    stream_.synchronize();
    call_.run(down() == nullptr ? nullptr : down()->data(), host_target_.data());
    for (const Piece& piece : received_) {
      runtime().copy_async(target()->at(piece.offset), target()->copy_device(), host_target_.at(piece.offset), -1,
                           piece.bytes, stream_.handle());
    }
    stream_.synchronize();
  }
  void complete() override {}

 private:
  void connect() override {
    const int device = context().device();
    agreeing(group(), progress(), [&] {
      if (layout().target_bytes > 0) host_target_ = Buffer(runtime(), device, kind_, layout().target_bytes);
      if (layout().source_bytes > 0 && !layout().one_buffer) {
        host_source_ = Buffer(runtime(), device, kind_, layout().source_bytes);
      }
      stream_ = Stream(runtime(), device);
    });
  }
  void disconnect() noexcept override { stream_ = Stream(); }
  void free_scratch() noexcept override {
    host_source_ = Buffer();
    host_target_ = Buffer();
  }

  // What the library sends from; in place that is the target's.
  const Buffer* down() const {
    if (layout().source_bytes == 0) return nullptr;
    return layout().one_buffer ? &host_target_ : &host_source_;
  }

  MemoryKind kind_;
  MpiCollectiveCall call_;
  std::vector<Piece> sent_;
  std::vector<Piece> received_;
  Buffer host_source_;
  Buffer host_target_;
  Stream stream_;
};

class StagingTransport final : public Transport {
 public:
  std::string_view name() const override { return "staging"; }
  std::vector<std::string_view> variants() const override { return kStagingVariants.names(); }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    const Mechanism& by = spec.mechanism;
    const std::optional<StagingVariant> variant = kStagingVariants.read(by.variant);
    if (!variant) return kStagingVariants.why_not(by.variant);
    if (variant == StagingVariant::kComposed && !traits_of(spec.traffic.pattern).mpi_call) {
      return "composed is a variant of collectives; leave --variant out";
    }
    if (std::string reason = why_no_algorithm(name(), by); !reason.empty()) return reason;
    if (by.via >= 0) return "staging goes through host memory, not through a device; leave --via out";
    const std::optional<HostLegBy> host_leg = host_leg_of(context, by);
    if (!host_leg) return "staging has no host leg '" + by.host_leg + "'; it is mpi or memcpy";
    for (const MemoryKind kind : {spec.places.source.kind, spec.places.target.kind}) {
      if (kind == MemoryKind::kPinned || kind == MemoryKind::kPageable) {
        return "staging takes device memory through the host; for " + std::string(to_string(kind)) +
               " memory use transport mpi";
      }
    }
    if (host_leg == HostLegBy::kMemcpy) {
      if (context.group->node_count() > 1) return "the host leg memcpy stays on one node; use --host-leg mpi";
      return why_not_shareable(context, staging_kind(*variant));
    }
    if (context.mpi == nullptr) {
      return "the host leg mpi needs ranks that an MPI launcher started; use --host-leg memcpy";
    }
    if (has_own_collective(context, spec, *variant))
      return why_not_mpi_collective(*context.mpi, spec.traffic, context.size());
    return variant == StagingVariant::kPipelined ? ""
                                                 : context.mpi->why_not_size(block_bytes(spec.traffic, context.size()));
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const Flows& flows) override {
    const MemoryKind kind = staging_kind(kStagingVariants.of(spec.mechanism));
    const auto engine = std::make_shared<StagingEngine>();
    const SourceSlots leaving = source_slots(context, spec, flows);
    std::vector<std::size_t> arriving(flows.size());
    std::size_t arriving_bytes = 0;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (flows[i].target != context.rank()) continue;
      arriving[i] = arriving_bytes;
      arriving_bytes += slots_bytes(shape_of(spec, flows[i]));
    }
    std::vector<std::unique_ptr<StagingChannel>> channels(flows.size());
    agreeing(*context.group, progress(context), [&] {
      const auto memory = [&](std::size_t bytes) {
        return bytes > 0 ? Buffer(*context.runtime, context.device(), kind, bytes) : Buffer();
      };
      engine->source_slots = memory(leaving.bytes);
      engine->target_slots = memory(arriving_bytes);
      if (leaving.bytes > 0) {
        std::memcpy(engine->source_slots.data(), leaving.table.data(), leaving.table.size() * sizeof(std::uint64_t));
      }
      for (std::size_t i = 0; i < flows.size(); ++i) {
        const bool sends = flows[i].source == context.rank();
        const bool receives = flows[i].target == context.rank();
        if (!sends && !receives) continue;
        const StagingChannel::Slots slots{sends ? engine->source_slots.at(leaving.places[i]) : nullptr,
                                          receives ? engine->target_slots.at(arriving[i]) : nullptr};
        channels[i] = std::make_unique<StagingChannel>(context, flows[i], shape_of(spec, flows[i]), slots, engine);
      }
    });
    if (host_leg_of(context, spec.mechanism) == HostLegBy::kMpi) {
      connect_mpi(context, flows, fresh_tags(context, progress(context)), channels);
    } else {
      connect_memcpy(context, spec, flows, *engine, channels);
    }
    std::vector<std::unique_ptr<Channel>> result;
    result.reserve(channels.size());
    for (std::unique_ptr<StagingChannel>& channel : channels) result.push_back(std::move(channel));
    return result;
  }

  std::unique_ptr<Operation> collective(const RankContext& context, const CaseSpec& spec) override {
    const StagingVariant variant = kStagingVariants.of(spec.mechanism);
    if (!has_own_collective(context, spec, variant)) return nullptr;
    return std::make_unique<StagedCollective>(*this, context, spec, staging_kind(variant));
  }

  Progress progress(const RankContext& context) override {
    if (context.mpi == nullptr) return {};
    return [mpi = context.mpi, communicator = context.communicator] { mpi->progress(communicator); };
  }

 private:
  static bool has_own_collective(const RankContext& context, const CaseSpec& spec, StagingVariant variant) {
    // MPI's barrier moves nothing, through the host or not.
    return host_leg_of(context, spec.mechanism) == HostLegBy::kMpi && traits_of(spec.traffic.pattern).mpi_call &&
           spec.traffic.pattern != Pattern::kBarrier && variant != StagingVariant::kComposed &&
           variant != StagingVariant::kPipelined;
  }

  static StagingShape shape_of(const CaseSpec& spec, const Flow& flow) {
    constexpr std::int64_t kMostQueued = 4096;
    const Mechanism& by = spec.mechanism;
    StagingShape shape;
    shape.chunk_bytes = flow.bytes;
    if (kStagingVariants.of(by) == StagingVariant::kPipelined) {
      const std::size_t chunk = by.chunk_bytes > 0 ? static_cast<std::size_t>(by.chunk_bytes) : kPipelineChunkBytes;
      shape.chunk_bytes = std::min(shape.chunk_bytes, chunk);
      shape.slots = kPipelineSlots;
    }
    const std::int64_t queued =
        std::int64_t{std::max(1, spec.traffic.window)} * std::max(1, spec.timing.batch) * flow.messages;
    shape.queue = static_cast<std::size_t>(std::clamp<std::int64_t>(queued, 1, kMostQueued));
    return shape;
  }

  static SourceSlots source_slots(const RankContext& context, const CaseSpec& spec, const Flows& flows) {
    std::vector<std::size_t> sent;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (flows[i].source == context.rank()) sent.push_back(i);
    }
    SourceSlots slots;
    if (sent.empty()) return slots;
    std::stable_sort(sent.begin(), sent.end(),
                     [&](std::size_t a, std::size_t b) { return flows[a].target < flows[b].target; });
    slots.table.resize(static_cast<std::size_t>(context.size()));
    slots.places.resize(flows.size());
    slots.bytes = (slots.table.size() * sizeof(std::uint64_t) + kPage - 1) / kPage * kPage;
    int last = -1;
    for (const std::size_t i : sent) {
      if (flows[i].target != last) slots.table[static_cast<std::size_t>(flows[i].target)] = slots.bytes;
      last = flows[i].target;
      slots.places[i] = slots.bytes;
      slots.bytes += slots_bytes(shape_of(spec, flows[i]));
    }
    return slots;
  }

  static void connect_mpi(const RankContext& context, const Flows& flows, int first_tag,
                          std::vector<std::unique_ptr<StagingChannel>>& channels) {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const int tag = first_tag + 2 * flows[i].ordinal;  // of its chunks; the next of its answers
      if (channels[i] != nullptr) channels[i]->set_leg(make_mpi_leg(context, flows[i], channels[i]->leg_ends(), tag));
    }
  }

  static void connect_memcpy(const RankContext& context, const CaseSpec& spec, const Flows& flows,
                             const StagingEngine& engine, std::vector<std::unique_ptr<StagingChannel>>& channels) {
    Flows slots;
    for (const Flow& flow : flows)
      slots.add({flow.source, flow.target, flow.source == context.rank() ? &engine.source_slots : nullptr, nullptr});
    const std::vector<PeerBuffer> peers = open_peers(context, slots, ExposedEnd::kSource);
    const std::vector<FlowFlags> flags = connect_flags(context, flows);
    std::map<int, std::size_t> passed;  // by source: the slots of its earlier flows to this rank
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (channels[i] == nullptr) continue;
      const auto* place = static_cast<const std::byte*>(peers[i].data);
      if (flows[i].target == context.rank()) {
        std::uint64_t begin = 0;
        std::memcpy(&begin, place + static_cast<std::size_t>(context.rank()) * sizeof begin, sizeof begin);
        std::size_t& before = passed[flows[i].source];
        place += begin + before;
        before += slots_bytes(shape_of(spec, flows[i]));
      }
      channels[i]->set_leg(make_memcpy_leg(flags[i], channels[i]->leg_ends(), place));
      channels[i]->keep(peers[i].opened);
    }
  }
};

}  // namespace

std::unique_ptr<Transport> make_staging_transport() { return std::make_unique<StagingTransport>(); }

}  // namespace linkgauge
