#include "transport/transport.h"

#include <array>
#include <string>

#include "errors.h"
#include "transport/peer_memory.h"
#include "transport/transports.h"

namespace linkgauge {
namespace {

struct Named {
  std::string_view name;
  std::unique_ptr<Transport> (*make)();
};
constexpr auto kTransports = std::to_array<Named>({
    {"staging", make_staging_transport},
    {"copy_engine", make_copy_engine_transport},
    {"kernel", make_kernel_transport},
    {"ccl", make_ccl_transport},
    {"ucx", make_ucx_transport},
    {"ofi", make_ofi_transport},
    {"nixl", make_nixl_transport},
    {"nvshmem", make_nvshmem_transport},
    {"mpi", make_mpi_transport},
});

}  // namespace

std::unique_ptr<Transport> make_transport(std::string_view name) {
  std::string expected;
  for (const Named& entry : kTransports) {
    if (entry.name == name) return entry.make();
    expected += (expected.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw CallerError("unknown transport '" + std::string(name) + "', expected one of: " + expected);
}

std::vector<PeerBuffer> Transport::peers(const RankContext& context, const CaseSpec&, const std::vector<Flow>& flows,
                                         ExposedEnd end) {
  return open_peers(context, flows, end);
}

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
