#include "transport/net/net_transport.h"

#include <optional>
#include <set>
#include <utility>

#include "base/errors.h"
#include "transport/net/channels.h"
#include "transport/options.h"

namespace linkgauge::nic {
namespace {

enum class NicVariant : std::uint8_t { kTagged, kPut, kGet };
constexpr VariantWord<NicVariant> kNicWords[] = {
    {"tag", NicVariant::kTagged}, {"put", NicVariant::kPut}, {"get", NicVariant::kGet}};

// Nothing where the case names a buffer that the transports do not know.
std::optional<bool> registered_ahead(const Mechanism& by) {
  if (by.buffer == "registered") return true;
  if (by.buffer.empty() || by.buffer == "plain") return false;
  return {};
}

}  // namespace

Connections::Connections(const RankContext& context, std::shared_ptr<Worker> worker, const Flows& flows, bool ahead)
    : context_(context), worker_(std::move(worker)), ahead_(ahead) {
  std::set<int> peers;
  for (const Flow& flow : flows) {
    if (flow.ends_at(context.rank())) peers.insert(flow.peer_of(context.rank()));
  }
  met_ = worker_->meet(*context.group, {peers.begin(), peers.end()});
}

Connections::~Connections() {
  if (context_.group->aborted()) worker_->mark_broken();
  if (worker_->broken()) return;
  try {
    for (const auto& [rank, peer] : met_.peers) {
      const std::string ways = worker_->ways(peer);
      if (!ways.empty()) context_.choose("ways", ways);
    }
    context_.choose(worker_->name(), worker_->version());
  } catch (const std::exception&) {  // no memory for a note: the case has its samples all the same
  }
}

Region Connections::region(const Buffer& buffer) const {
  return {buffer.data(), buffer.size(), memory_type_of(*context_.runtime, buffer.kind()), buffer.device()};
}

const Memory& Connections::registered(const Buffer& buffer) {
  std::unique_ptr<Memory>& known = registered_[&buffer];
  if (!known) known = worker_->registered(region(buffer));
  return *known;
}

const Memory* Connections::memory_of(const Buffer& buffer) {
  return ahead_ || worker_->registers(region(buffer)) ? &registered(buffer) : nullptr;
}

std::unique_ptr<Link> Connections::link(int rank, const Buffer& own) {
  return worker_->link(*context_.group, peer(rank), region(own), memory_of(own));
}

std::string NicTransport::supports(const RankContext& context, const CaseSpec& spec) const {
  const Mechanism& by = spec.mechanism;
  const Variants<NicVariant> options{name(), kNicWords};
  if (!options.read(by.variant)) return options.why_not(by.variant);
  if (std::string reason = why_no_algorithm(name(), by); !reason.empty()) return reason;
  if (std::string reason = why_not_via(name(), by); !reason.empty()) return reason;
  if (!registered_ahead(by))
    return std::string(name()) + " knows buffer = plain and registered, not '" + by.buffer + "'";
  try {
    for (const MemoryKind kind : {spec.places.source.kind, spec.places.target.kind}) {
      const MemoryType type = memory_type_of(*context.runtime, kind);
      if (type == MemoryType::kHost) continue;
      if (const std::string reason = why_not_memory(context, type); !reason.empty()) return reason;
    }
    return why_not(context, spec);
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<std::unique_ptr<Channel>> NicTransport::connect(const RankContext& context, const CaseSpec& spec,
                                                            const Flows& flows) {
  const auto connections = std::make_shared<Connections>(context, worker(context), flows, registers_ahead(spec));
  const NicVariant variant = Variants<NicVariant>{name(), kNicWords}.of(spec.mechanism);
  if (variant == NicVariant::kTagged) return tag_channels(context, flows, connections);
  return remote_memory_channels(context, spec, flows, connections, variant == NicVariant::kPut);
}

bool NicTransport::registers_ahead(const CaseSpec& spec) { return registered_ahead(spec.mechanism).value_or(false); }

std::vector<std::string_view> NicTransport::variants() const { return Variants<NicVariant>{name(), kNicWords}.names(); }

Progress NicTransport::progress(const RankContext& context) {
  return [worker = worker(context)] { (void)worker->progress(); };
}

void NicTransport::meet(const RankContext& launch, const CaseSpec& spec, int /*rank*/) {
  std::shared_ptr<void>& mine = kept(launch);
  if (mine && static_cast<Worker*>(mine.get())->settings() != spec.mechanism.settings) mine.reset();
}

std::shared_ptr<void>& NicTransport::kept(const RankContext& context) const {
  return context.lasting == nullptr ? own_ : (*context.lasting)[std::string(name())];
}

std::shared_ptr<Worker> NicTransport::worker(const RankContext& context) const {
  std::shared_ptr<void>& mine = kept(context);
  if (mine) {
    const auto* const known = static_cast<Worker*>(mine.get());
    if (known->broken() || known->settings() != context.settings) mine.reset();
  }
  if (!mine) {
    const std::shared_ptr<Worker> made = make_worker(context);
    made->made_under(context.settings);
    mine = made;
  }
  return std::static_pointer_cast<Worker>(mine);
}

}  // namespace linkgauge::nic
