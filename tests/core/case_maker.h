// Cases, contexts and runs of operations for the tests of transports and patterns.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/case_spec.h"
#include "base/errors.h"
#include "device/device_runtime.h"
#include "fewer.h"
#include "on_threads.h"
#include "operation/make_operation.h"
#include "transport/net/ofi/api.h"
#include "transport/net/ucx/api.h"
#include "transport/nixl/api.h"
#include "transport/operation.h"

namespace linkgauge {

inline CaseSpec case_of(const std::string& transport, Pattern pattern, int ranks, std::int64_t size_bytes) {
  CaseSpec spec;
  spec.mechanism.transport = transport;
  spec.traffic.pattern = pattern;
  spec.traffic.size_bytes = size_bytes;
  spec.timing.seed = 77;
  for (int rank = 0; rank < ranks; ++rank) {
    spec.places.rank_list.push_back(rank);
    spec.places.devices.push_back(rank);
  }
  return spec;
}

inline std::ostream& operator<<(std::ostream& out, const Mechanism& mechanism) {
  out << mechanism.transport << (mechanism.variant.empty() ? "" : "+") << mechanism.variant;
  return out << (mechanism.initiator == Initiator::kSender ? " by the sender" : " by the receiver");
}

// By what a case's bytes move; pipelined in many chunks, the last one short.
inline CaseSpec case_of(const Mechanism& mechanism, Pattern pattern, int ranks, std::int64_t size_bytes) {
  CaseSpec spec = case_of(mechanism.transport, pattern, ranks, size_bytes);
  spec.mechanism = mechanism;
  if (mechanism.variant == "pipelined") spec.mechanism.chunk_bytes = 4096;
  return spec;
}

inline std::shared_ptr<DeviceRuntime> host_devices(int count) {
  RuntimeRequest request;
  request.which = "host";
  request.host_devices = count;
  return open_runtime(request);
}

// Where tests look for libraries before the loader does: folders of LINKGAUGE_TEST_LIBRARY_FOLDERS, colons between.
inline std::vector<std::string> library_folders_of_tests() {
  std::vector<std::string> folders;
  if (const char* named = std::getenv("LINKGAUGE_TEST_LIBRARY_FOLDERS"); named != nullptr) {
    std::istringstream parts(named);
    for (std::string folder; std::getline(parts, folder, ':');) folders.push_back(folder);
  }
  return folders;
}

// Why a transport over a library that may be absent (ucx, ofi, nixl) is not tested here; "" where it is, and of others.
inline std::string why_not_tested(std::string_view transport) {
  if (transport != "ucx" && transport != "ofi" && transport != "nixl") return "";
  if (kThreadSanitizer) return "the thread sanitizer sees none of what UCX and libfabric order";
  try {
    if (transport == "ucx") (void)ucx::Library::load(library_folders_of_tests());
    if (transport == "ofi") (void)ofi::Library::load(library_folders_of_tests());
    if (transport == "nixl") (void)nixl::Library::load(library_folders_of_tests());
  } catch (const Unsupported& reason) {
    return reason.what();
  }
  return "";
}

inline RankContext context_of(DeviceRuntime& runtime, Group& group, const CaseSpec& spec) {
  RankContext context;
  context.runtime = &runtime;
  context.group = &group;
  context.device_of_rank = spec.places.devices;
  context.libraries.folders = library_folders_of_tests();
  runtime.bind_thread(context.device());
  return context;
}

using TransportMaker = std::unique_ptr<Transport> (*)(const CaseSpec&);
inline std::unique_ptr<Transport> plain_transport(const CaseSpec& spec) {
  return make_transport(spec.mechanism.transport);
}

// Calls body(group, operation) on every rank of the case; the operation is made and not prepared.
template <typename Body>
void on_operations(DeviceRuntime& runtime, const CaseSpec& spec, const Body& body,
                   TransportMaker make = plain_transport) {
  on_threads(static_cast<int>(spec.places.rank_list.size()), [&](Group& group) {
    const RankContext context = context_of(runtime, group, spec);
    const std::unique_ptr<Transport> transport = make(spec);
    const std::unique_ptr<Operation> operation = make_operation(*transport, context, spec);
    body(group, *operation);
  });
}

// Runs `rounds` rounds of `operations` operations on every rank, each round with a new seed, and returns each rank's
// last verification.
inline std::vector<VerifyResult> run_case_on(const std::shared_ptr<DeviceRuntime>& runtime, const CaseSpec& spec,
                                             int rounds = 2, int operations = 3,
                                             TransportMaker make = plain_transport) {
  const int ranks = static_cast<int>(spec.places.rank_list.size());
  std::vector<VerifyResult> results(static_cast<std::size_t>(ranks));
  const auto body = [&](Group& group, Operation& operation) {
    operation.prepare();
    VerifyResult result;
    for (int round = 0; round < rounds && result.ok; ++round) {
      const std::uint64_t seed = spec.timing.seed + static_cast<std::uint64_t>(round);
      operation.fill(seed);
      group.barrier(operation.progress());
      for (int i = 0; i < (spec.traffic.in_place ? 1 : operations); ++i) operation.post();
      operation.complete();
      group.barrier(operation.progress());
      result = operation.verify(seed);
      group.barrier(operation.progress());
    }
    operation.release();
    results[static_cast<std::size_t>(group.rank())] = result;
  };
  on_operations(*runtime, spec, body, make);
  return results;
}

inline std::vector<VerifyResult> run_case(const CaseSpec& spec, int rounds = 2, int operations = 3,
                                          TransportMaker make = plain_transport) {
  const int ranks = static_cast<int>(spec.places.rank_list.size());
  return run_case_on(host_devices(std::max(ranks, spec.mechanism.via + 1)), spec, rounds, operations, make);
}

}  // namespace linkgauge
