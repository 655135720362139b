// libfabric's own tagged messages, writes and reads: the library below MPI on Slingshot, EFA and Omni-Path, and over
// TCP. One endpoint a rank for the whole session, of the provider that libfabric itself names first.
#include <memory>
#include <string>

#include "transport/net/net_transport.h"
#include "transport/net/ofi/worker.h"
#include "transport/registry.h"

namespace linkgauge {
namespace {

class OfiTransport final : public nic::NicTransport {
 public:
  std::string_view name() const override { return "ofi"; }

 private:
  std::shared_ptr<nic::Worker> make_worker(const RankContext& context) const override {
    return std::make_shared<ofi::RankWorker>(ofi::Library::load(context.libraries.folders),
                                             context.runtime->name() != "host");
  }

  std::string why_not_memory(const RankContext& context, nic::MemoryType /*type*/) const override {
    const auto mine = std::static_pointer_cast<ofi::RankWorker>(worker(context));
    if (mine->takes_device_memory()) return "";
    return "libfabric " + mine->version() + " at " + mine->library().path() + " has no provider for " +
           std::string(context.runtime->name()) +
           " memory (FI_HMEM); use pinned memory, or a libfabric that was built with it";
  }

  std::string why_not(const RankContext& context, const CaseSpec& spec) const override {
    const auto mine = std::static_pointer_cast<ofi::RankWorker>(worker(context));
    const std::size_t most = mine->largest_message();
    if (spec.traffic.bytes() <= most) return "";
    return mine->ways(0) + " of libfabric has messages of at most " + std::to_string(most) + " bytes";
  }
};

}  // namespace

std::unique_ptr<Transport> make_ofi_transport() { return std::make_unique<OfiTransport>(); }

}  // namespace linkgauge
