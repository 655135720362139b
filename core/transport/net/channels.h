// The flows of one operation over a library of network cards: tagged messages, or puts and gets into the other rank's
// registered memory.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/not_copied.h"
#include "transport/net/worker.h"
#include "transport/transport.h"

namespace linkgauge::nic {

// What the channels of one operation on this rank share. When the last of them goes, it notes which ways were taken.
class Connections : NotCopied {
 public:
  // Collective over the context's group. `ahead`: every buffer is registered before messages take it.
  Connections(const RankContext& context, std::shared_ptr<Worker> worker, const Flows& flows, bool ahead);
  ~Connections();

  Worker& worker() const { return *worker_; }
  Group& group() const { return *context_.group; }
  Peer peer(int rank) const { return met_.peers.at(rank); }
  std::uint32_t turn() const { return met_.turn; }

  Region region(const Buffer& buffer) const;
  // The buffer as the library has it registered, once for all flows. Throws RuntimeCallError where that fails.
  const Memory& registered(const Buffer& buffer);
  // This rank's end of a flow to `rank` whose messages lie in `own`.
  std::unique_ptr<Link> link(int rank, const Buffer& own);
  // The registered memory of `buffer`, or nullptr where its messages need none.
  const Memory* memory_of(const Buffer& buffer);

 private:
  RankContext context_;
  std::shared_ptr<Worker> worker_;
  bool ahead_;
  Worker::Meeting met_;
  std::map<const Buffer*, std::unique_ptr<Memory>> registered_;
};

// transport/net/tagged.cpp. Collective.
std::vector<std::unique_ptr<Channel>> tag_channels(const RankContext& context, const Flows& flows,
                                                   const std::shared_ptr<Connections>& connections);
// transport/net/rma.cpp. Collective: exchanges where the buffers are. `puts`: by the source's rank, else gets.
std::vector<std::unique_ptr<Channel>> remote_memory_channels(const RankContext& context, const CaseSpec& spec,
                                                             const Flows& flows,
                                                             const std::shared_ptr<Connections>& connections,
                                                             bool puts);

}  // namespace linkgauge::nic
