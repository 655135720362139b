// A transport over a library of network cards: what UCX's and libfabric's have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/net/worker.h"
#include "transport/transport.h"

namespace linkgauge::nic {

class NicTransport : public Transport {
 public:
  // Here each rank of a launch gives up a worker that was made under other settings than the case's: none is left with
  // a connection to one that is gone.
  void meet(const RankContext& launch, const CaseSpec& spec, int rank) final;
  std::string supports(const RankContext& context, const CaseSpec& spec) const final;
  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const Flows& flows) final;
  std::vector<std::string_view> variants() const final;
  Progress progress(const RankContext& context) final;

 protected:
  // A worker as the environment and `context.settings` say. Throws Unsupported where the library is not to be had, or
  // RuntimeCallError.
  virtual std::shared_ptr<Worker> make_worker(const RankContext& context) const = 0;
  // Why memory of that type cannot be moved, with what would help; "" where it can. Not asked of host memory.
  virtual std::string why_not_memory(const RankContext& context, MemoryType type) const = 0;
  // Why else not, once the library is there; "" where nothing is in the way.
  virtual std::string why_not(const RankContext& context, const CaseSpec& spec) const = 0;

  // Whether the case has every buffer registered before messages take it.
  static bool registers_ahead(const CaseSpec& spec);
  // This rank's worker, made where there is none, it broke, or it is of other settings. Kept in `context.lasting`, or
  // here where the context keeps nothing.
  std::shared_ptr<Worker> worker(const RankContext& context) const;

 private:
  std::shared_ptr<void>& kept(const RankContext& context) const;

  mutable std::shared_ptr<void> own_;
};

}  // namespace linkgauge::nic
