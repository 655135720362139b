// NIXL's transfers between registered memory: what inference frameworks move KV caches by. Who starts a transfer waits
// for it, then notifies the other end through NIXL, so that this works between nodes too. One agent a rank for the
// whole session.
#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/not_copied.h"
#include "base/wire.h"
#include "transport/agreement.h"
#include "transport/nixl/agent.h"
#include "transport/one_sided.h"
#include "transport/options.h"
#include "transport/registry.h"

namespace linkgauge {
namespace nixl {
namespace {

MemoryType memory_type_of(const DeviceRuntime& runtime, MemoryKind kind) {
  return kind == MemoryKind::kDevice && runtime.name() != "host" ? kVram : kDram;
}
// As NIXL names devices: the runtime's ordinals; 0 for the host's memory.
std::uint64_t device_of(MemoryType type, int device) { return type == kVram ? static_cast<std::uint64_t>(device) : 0; }

// A buffer that transfers may begin or end in.
class Registered : NotCopied {
 public:
  // Throws RuntimeCallError where NIXL cannot register the memory.
  Registered(const RankAgent& agent, const Buffer& buffer, MemoryType type, std::uint64_t device) : agent_(&agent) {
    const Table& calls = agent.calls();
    agent.library().run(calls.nixl_capi_create_reg_dlist, type, &regions_, false);
    Status status = calls.nixl_capi_reg_dlist_add_desc(regions_, reinterpret_cast<std::uintptr_t>(buffer.data()),
                                                       buffer.size(), device, nullptr, 0);
    if (status == kOk) status = calls.nixl_capi_register_mem(agent.get(), regions_, agent.options());
    if (status == kOk) return;
    (void)calls.nixl_capi_destroy_reg_dlist(regions_);
    agent.library().fail(status, "nixl_capi_register_mem");
  }
  ~Registered() {
    (void)agent_->calls().nixl_capi_deregister_mem(agent_->get(), regions_, agent_->options());
    (void)agent_->calls().nixl_capi_destroy_reg_dlist(regions_);
  }

 private:
  const RankAgent* agent_;
  Regions regions_ = nullptr;
};

// Where a flow begins or ends on the other rank.
struct RemotePlace {
  std::int32_t source = 0;
  std::int32_t target = 0;
  std::int64_t ordinal = 0;
  std::uint64_t address = 0;
  std::uint64_t device = 0;
  std::uint32_t type = kDram;
  std::uint32_t place = 0;  // among the other rank's flows
};

// What the channels of one connection on this rank share.
struct Shared : NotCopied {
  RankContext context;
  std::shared_ptr<RankAgent> agent;
  std::uint32_t turn = 0;
  const RankAgent::Heard* heard = nullptr;
  std::map<const Buffer*, std::unique_ptr<Registered>> buffers;

  ~Shared() {
    if (context.group->aborted()) agent->mark_broken();
    agent->end(turn);
  }
};

class TransferChannel final : public OneSidedChannel {
 public:
  TransferChannel(std::shared_ptr<Shared> shared, const Flow& flow, Ends ends, std::uint32_t place,
                  std::size_t page_bytes)
      : OneSidedChannel(shared->context, ends),
        shared_(std::move(shared)),
        agent_(shared_->agent.get()),
        writes_(ends.sender_starts),
        place_(place),
        page_bytes_(page_bytes),
        peer_(agent_->name()) {
    const Buffer& own = ends.source ? *flow.source_buffer : *flow.target_buffer;
    own_ = reach(own);
    remote_ = ends.source && ends.target ? reach(*flow.target_buffer) : RemotePlace{};
    if (ends.source && ends.target && !writes_) {
      own_ = reach(*flow.target_buffer);
      remote_ = reach(*flow.source_buffer);
    }
  }
  ~TransferChannel() override {
    if (!under_way_.empty()) agent_->mark_broken();
    for (const Posted& posted : under_way_) end(posted.request);
    for (const auto& [shape, requests] : free_) {
      for (Request const request : requests) end(request);
    }
  }
  void connect(std::string peer, const RemotePlace& remote) {
    peer_ = std::move(peer);
    remote_ = remote;
  }

 private:
  using Shape = std::tuple<std::size_t, std::size_t, std::size_t>;  // offset here, offset there, bytes
  struct Posted {
    Shape shape;
    Request request = nullptr;
  };

  RemotePlace reach(const Buffer& buffer) const {
    const MemoryType type = memory_type_of(*shared_->context.runtime, buffer.kind());
    return {.address = reinterpret_cast<std::uint64_t>(buffer.data()),
            .device = device_of(type, shared_->context.device()),
            .type = type};
  }

  void start_copy(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    const Shape shape =
        writes_ ? Shape{source_offset, target_offset, bytes} : Shape{target_offset, source_offset, bytes};
    std::vector<Request>& known = free_[shape];
    Request request = nullptr;
    if (known.empty()) {  // made by the operations that are not timed, and posted again from then on
      request = make(shape);
    } else {
      request = known.back();
      known.pop_back();
    }
    const Status status = agent_->calls().nixl_capi_post_xfer_req(agent_->get(), request, agent_->options());
    if (status == kInProgress) {
      under_way_.push_back({shape, request});
    } else {
      known.push_back(request);
      agent_->check_transfer(*shared_->context.group, status, "nixl_capi_post_xfer_req");
    }
  }
  void finish() override {
    agent_->drive_until(*shared_->context.group, [this] {
      while (!under_way_.empty()) {
        const Posted last = under_way_.back();
        const Status status = agent_->calls().nixl_capi_get_xfer_status(agent_->get(), last.request);
        if (status == kInProgress) return false;
        agent_->check_transfer(*shared_->context.group, status, "nixl_capi_get_xfer_status");
        under_way_.pop_back();
        free_[last.shape].push_back(last.request);
      }
      return true;
    });
  }
  void tell(std::uint64_t messages) override {
    agent_->notify(*shared_->context.group, peer_, {shared_->turn, remote_.place, messages});
  }
  void await(std::uint64_t messages) override {
    agent_->drive_until(*shared_->context.group, [&] { return (*shared_->heard)[place_] >= messages; });
  }

  Request make(const Shape& shape) const {
    const auto& [here, there, bytes] = shape;
    const Table& calls = agent_->calls();
    Descriptors local = nullptr;
    Descriptors remote = nullptr;
    Request request = nullptr;
    Status status = calls.nixl_capi_create_xfer_dlist(own_.type, &local, false);
    if (status == kOk) status = calls.nixl_capi_create_xfer_dlist(remote_.type, &remote, false);
    const std::size_t page = page_bytes_ == 0 ? bytes : page_bytes_;
    for (std::size_t at = 0; at < bytes && status == kOk; at += page) {
      const std::size_t length = std::min(page, bytes - at);
      status = calls.nixl_capi_xfer_dlist_add_desc(local, own_.address + here + at, length, own_.device);
      if (status != kOk) break;
      status = calls.nixl_capi_xfer_dlist_add_desc(remote, remote_.address + there + at, length, remote_.device);
    }
    if (status == kOk) {
      status = calls.nixl_capi_create_xfer_req(agent_->get(), writes_ ? kWrite : kRead, local, remote, peer_.c_str(),
                                               &request, agent_->options());
    }
    if (local != nullptr) (void)calls.nixl_capi_destroy_xfer_dlist(local);
    if (remote != nullptr) (void)calls.nixl_capi_destroy_xfer_dlist(remote);
    agent_->library().check(status, "nixl_capi_create_xfer_req");
    return request;
  }
  void end(Request request) const {
    (void)agent_->calls().nixl_capi_release_xfer_req(agent_->get(), request);
    (void)agent_->calls().nixl_capi_destroy_xfer_req(request);
  }

  std::shared_ptr<Shared> shared_;
  RankAgent* agent_;
  bool writes_;
  std::uint32_t place_;
  std::size_t page_bytes_;  // of a descriptor; 0: one descriptor a message
  std::string peer_;        // its agent's name
  RemotePlace own_;
  RemotePlace remote_;
  std::map<Shape, std::vector<Request>> free_;
  std::vector<Posted> under_way_;
};

enum class Way : std::uint8_t { kPut, kGet };
constexpr VariantWord<Way> kWords[] = {{"put", Way::kPut}, {"get", Way::kGet}};
constexpr Variants<Way> kVariants{"nixl", kWords};

// What a rank says of itself and its flows: turn, name, metadata, places.
struct Said {
  std::uint32_t turn = 0;
  std::string name;
  std::string metadata;
  std::vector<RemotePlace> places;

  Bytes packed() const {
    WireWriter writer;
    writer.value(turn).bytes(bytes_of(name)).bytes(bytes_of(metadata)).rest(std::as_bytes(std::span(places)));
    return writer.message();
  }
  static Said of(const Bytes& message) {
    WireReader reader(message);
    Said said;
    said.turn = reader.value<std::uint32_t>();
    said.name = text_of(reader.bytes());
    said.metadata = text_of(reader.bytes());
    said.places = values_of<RemotePlace>(reader.rest());
    return said;
  }
};

std::vector<std::unique_ptr<Channel>> transfer_channels(const RankContext& context, const CaseSpec& spec,
                                                        const Flows& flows, std::shared_ptr<RankAgent> agent) {
  const bool writes = kVariants.of(spec.mechanism) == Way::kPut;
  const auto shared = std::make_shared<Shared>();
  shared->context = context;
  shared->agent = std::move(agent);
  RankAgent& mine = *shared->agent;
  Said said{mine.last_turn(), mine.name(), {}, {}};
  std::string reason;
  try {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      for (const Buffer* const buffer : {flows[i].source_buffer, flows[i].target_buffer}) {
        if (buffer == nullptr) continue;
        const MemoryType type = memory_type_of(*context.runtime, buffer->kind());
        const std::uint64_t device = device_of(type, context.device());
        if (!shared->buffers.contains(buffer)) {
          shared->buffers[buffer] = std::make_unique<Registered>(mine, *buffer, type, device);
        }
        if (buffer != (writes ? flows[i].target_buffer : flows[i].source_buffer)) continue;
        said.places.push_back({flows[i].source, flows[i].target, flows[i].ordinal,
                               reinterpret_cast<std::uint64_t>(buffer->data()), device, type,
                               static_cast<std::uint32_t>(i)});
      }
      // The end that starts is told too.
      if ((writes ? flows[i].target_buffer : flows[i].source_buffer) == nullptr) {
        said.places.push_back(
            {flows[i].source, flows[i].target, flows[i].ordinal, 0, 0, kDram, static_cast<std::uint32_t>(i)});
      }
    }
    said.metadata = mine.metadata();
  } catch (const RuntimeCallError& error) {
    reason = error.what();
  }
  const Progress progress = [&mine] { (void)mine.progress(); };
  const auto all = context.group->exchange(said.packed(), progress);
  std::vector<Said> everyone;
  std::uint32_t turn = 0;
  for (const std::vector<std::byte>& bytes : all) {
    everyone.push_back(Said::of(bytes));
    turn = std::max(turn, everyone.back().turn);
  }
  shared->turn = turn + 1;
  shared->heard = &mine.begin(shared->turn, flows.size());
  std::vector<std::unique_ptr<Channel>> channels(flows.size());
  try {
    for (std::size_t i = 0; i < flows.size() && reason.empty(); ++i) {
      const Flow& flow = flows[i];
      const OneSidedChannel::Ends ends(context, spec, flow, writes);
      auto channel = std::make_unique<TransferChannel>(shared, flow, ends, static_cast<std::uint32_t>(i),
                                                       static_cast<std::size_t>(spec.mechanism.chunk_bytes));
      const int peer = flow.peer_of(context.rank());
      const Said& theirs = everyone[static_cast<std::size_t>(peer)];
      for (const RemotePlace& remote : theirs.places) {
        if (peer == context.rank()) break;
        if (remote.source != flow.source || remote.target != flow.target || remote.ordinal != flow.ordinal) continue;
        mine.know(theirs.name, theirs.metadata);
        channel->connect(theirs.name, remote);
        break;
      }
      channels[i] = std::move(channel);
    }
  } catch (const RuntimeCallError& error) {
    reason = error.what();
  }
  agree_or_throw(*context.group, reason, progress);
  context.choose("backend", kBackend);
  const auto page = static_cast<std::size_t>(spec.mechanism.chunk_bytes);
  for (const Flow& flow : flows) {
    if (page != 0) context.choose("descriptors", std::to_string((flow.bytes + page - 1) / page) + " a message");
  }
  return channels;
}

}  // namespace
}  // namespace nixl

namespace {

class NixlTransport final : public Transport {
 public:
  std::string_view name() const override { return "nixl"; }
  std::vector<std::string_view> variants() const override { return nixl::kVariants.names(); }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    const Mechanism& by = spec.mechanism;
    if (!nixl::kVariants.read(by.variant)) return nixl::kVariants.why_not(by.variant);
    if (std::string reason = why_no_algorithm(name(), by); !reason.empty()) return reason;
    if (std::string reason = why_not_via("NIXL", by); !reason.empty()) return reason;
    for (const MemoryKind kind : {spec.places.source.kind, spec.places.target.kind}) {
      if (kind == MemoryKind::kDevice && context.runtime->name() == "sycl") {
        return "NIXL knows no device memory of sycl devices; use pinned memory";
      }
      if (kind != MemoryKind::kManaged) continue;
      return "NIXL knows a device's memory and the host's, not managed memory";
    }
    try {
      (void)agent(context);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const Flows& flows) override {
    return nixl::transfer_channels(context, spec, flows, agent(context));
  }

  Progress progress(const RankContext& context) override {
    return [agent = agent(context)] { (void)agent->progress(); };
  }

 private:
  std::shared_ptr<nixl::RankAgent> agent(const RankContext& context) const { return nixl::agent_of(context, own_); }

  mutable std::shared_ptr<void> own_;  // where the context keeps nothing
};

}  // namespace

std::unique_ptr<Transport> make_nixl_transport() { return std::make_unique<NixlTransport>(); }

}  // namespace linkgauge
