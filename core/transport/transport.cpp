#include "transport/transport.h"

#include <array>
#include <string>

#include "base/errors.h"
#include "base/words.h"
#include "transport/operation.h"
#include "transport/peer_memory.h"
#include "transport/registry.h"

namespace linkgauge {
namespace {

struct Named {
  std::string_view name;
  std::unique_ptr<Transport> (*make)();
};
#define LINKGAUGE_NAMED(name) Named{#name, make_##name##_transport},
constexpr auto kTransports = std::to_array({LINKGAUGE_TRANSPORTS(LINKGAUGE_NAMED)});
#undef LINKGAUGE_NAMED

}  // namespace

std::unique_ptr<Transport> make_transport(std::string_view name) {
  return named("transport", name, kTransports, [](const Named& entry) { return entry.name; }).make();
}

std::vector<PeerBuffer> Transport::peers(const RankContext& context, const CaseSpec&, const Flows& flows,
                                         ExposedEnd end) {
  return open_peers(context, flows, end);
}

std::vector<std::unique_ptr<Channel>> Transport::connect(const RankContext&, const CaseSpec&, const Flows&) {
  throw Unsupported(std::string(name()) + " brings its own operations");
}

std::unique_ptr<Operation> Transport::collective(const RankContext&, const CaseSpec&) { return nullptr; }

std::string why_not_reached(const RankContext& context, const Places& places) {
  const bool pageable = places.source.kind == MemoryKind::kPageable || places.target.kind == MemoryKind::kPageable;
  return pageable ? context.runtime->why_not_pageable(context.device()) : "";
}

std::vector<std::string_view> transport_names() {
  std::vector<std::string_view> names;
  for (const Named& entry : kTransports) names.push_back(entry.name);
  return names;
}

}  // namespace linkgauge
