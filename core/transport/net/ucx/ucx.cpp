// UCX's own messages (tag matching), puts and gets: the library below MPI, on the case's buffers. One worker a rank for
// the whole session, polled by whoever waits; a connection for each two ranks, made when they first have a flow.
#include <memory>
#include <string>

#include "transport/net/net_transport.h"
#include "transport/net/ucx/worker.h"
#include "transport/registry.h"

namespace linkgauge {
namespace {

class UcxTransport final : public nic::NicTransport {
 public:
  std::string_view name() const override { return "ucx"; }
  bool takes_settings() const override { return true; }

 private:
  std::shared_ptr<nic::Worker> make_worker(const RankContext& context) const override {
    return std::make_shared<ucx::RankWorker>(ucx::Library::load(context.libraries.folders), context.settings);
  }

  std::string why_not_memory(const RankContext& context, nic::MemoryType type) const override {
    const ucx::Library& library = ucx::Library::load(context.libraries.folders);
    if (std::static_pointer_cast<ucx::RankWorker>(worker(context))->knows_memory(ucx::known_type(type))) return "";
    return "UCX " + library.version() + " at " + library.path() + " knows no " + std::string(context.runtime->name()) +
           " memory; fix: pip install libucx-cu12, and --env LD_LIBRARY_PATH with its folder where an MPI library " +
           "brings a UCX of its own";
  }

  std::string why_not(const RankContext& context, const CaseSpec& spec) const override {
    const ucx::Library& library = ucx::Library::load(context.libraries.folders);
    if (!context.settings.empty()) (void)worker(context);  // which throws where UCX does not take one
    if (!registers_ahead(spec) || library.at_least(ucx::kFirstMinorWithMemory)) return "";
    return "UCX " + library.version() + " takes no registered buffer with a message; 1.13 and newer do";
  }
};

}  // namespace

std::unique_ptr<Transport> make_ucx_transport() { return std::make_unique<UcxTransport>(); }

}  // namespace linkgauge
