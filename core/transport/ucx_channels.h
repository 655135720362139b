// The flows of one operation over UCX: tagged messages, or puts and gets into the other rank's registered memory.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transport/transport.h"
#include "transport/ucx_worker.h"

namespace linkgauge::ucx {

// What the channels of one operation on this rank share. When the last of them goes, it notes which ways UCX took.
class Connections {
 public:
  // Collective over the context's group.
  Connections(const RankContext& context, std::shared_ptr<RankWorker> worker, const std::vector<Flow>& flows);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  RankWorker& worker() const { return *worker_; }
  Group& group() const { return *context_.group; }
  Endpoint endpoint(int peer) const { return met_.endpoints.at(peer); }
  std::uint32_t turn() const { return met_.turn; }

 private:
  RankContext context_;
  std::shared_ptr<RankWorker> worker_;
  RankWorker::Meeting met_;
};

// The type of a buffer's memory as UCX knows it.
int memory_type_of(const DeviceRuntime& runtime, MemoryKind kind);

// transport/ucx_tag.cpp
std::vector<std::unique_ptr<Channel>> tag_channels(const RankContext& context, const std::vector<Flow>& flows,
                                                   const std::shared_ptr<Connections>& connections);
// transport/ucx_remote.cpp. Collective: exchanges where the buffers are.
std::vector<std::unique_ptr<Channel>> remote_memory_channels(const RankContext& context, const CaseSpec& spec,
                                                             const std::vector<Flow>& flows,
                                                             const std::shared_ptr<Connections>& connections);

}  // namespace linkgauge::ucx
