// UCX's own messages (tag matching), puts and gets: the library below MPI, on the case's buffers. One worker a rank for
// the whole session, polled by whoever waits; a connection for each two ranks, made when they first have a flow.
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "group/progress.h"
#include "pattern/operation.h"
#include "transport/transports.h"
#include "transport/ucx_channels.h"

namespace linkgauge {
namespace ucx {

Connections::Connections(const RankContext& context, std::shared_ptr<RankWorker> worker, const std::vector<Flow>& flows)
    : context_(context), worker_(std::move(worker)) {
  std::set<int> peers;
  for (const Flow& flow : flows) {
    if (flow.source == context.rank()) peers.insert(flow.target);
    if (flow.target == context.rank()) peers.insert(flow.source);
  }
  met_ = worker_->meet(*context.group, {peers.begin(), peers.end()});
}

Connections::~Connections() {
  if (context_.group->aborted()) worker_->mark_broken();
  if (worker_->broken()) return;
  try {
    for (const auto& [peer, endpoint] : met_.endpoints) {
      const std::string ways = worker_->ways(endpoint);
      if (!ways.empty()) context_.choose("ways", ways);
    }
    context_.choose("ucx", worker_->library().version());
  } catch (const std::exception&) {  // no memory for a note: the case has its samples all the same
  }
}

int memory_type_of(const DeviceRuntime& runtime, MemoryKind kind) {
  const bool managed = kind == MemoryKind::kManaged;
  if ((kind != MemoryKind::kDevice && !managed) || runtime.name() == "host") return kHostMemory;
  if (runtime.name() == "cuda") return managed ? kCudaManagedMemory : kCudaMemory;
  return managed ? kRocmManagedMemory : kRocmMemory;
}

}  // namespace ucx

namespace {

bool reaches_memory(const CaseSpec& spec) { return spec.variant == "put" || spec.variant == "get"; }

class UcxTransport final : public Transport {
 public:
  std::string_view name() const override { return "ucx"; }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    if (!spec.variant.empty() && spec.variant != "tag" && !reaches_memory(spec)) {
      return "ucx has no variant '" + spec.variant + "'; its variants are tag, put and get";
    }
    if (!spec.algorithm.empty()) return "ucx has no algorithm '" + spec.algorithm + "'; leave --algorithm out";
    if (spec.via >= 0) return "UCX chooses its own path; leave --via out";
    try {
      for (const MemoryKind kind : {spec.source_memory, spec.target_memory}) {
        const int type = ucx::memory_type_of(*context.runtime, kind);
        const ucx::Library& library = ucx::Library::load(context.libraries.folders);
        if (type == ucx::kHostMemory || worker(context)->knows_memory(type)) continue;
        return "UCX " + library.version() + " at " + library.path() + " knows no " +
               std::string(context.runtime->name()) + " memory; remedy: pip install libucx-cu12, and --env " +
               "LD_LIBRARY_PATH with its folder where an MPI library brings a UCX of its own";
      }
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const std::vector<Flow>& flows) override {
    const auto connections = std::make_shared<ucx::Connections>(context, worker(context), flows);
    if (reaches_memory(spec)) return ucx::remote_memory_channels(context, spec, flows, connections);
    return ucx::tag_channels(context, flows, connections);
  }

  std::unique_ptr<Operation> collective(const RankContext&, const CaseSpec&) override { return nullptr; }

  Progress progress(const RankContext& context) override {
    // Between nodes the group meets by calls of MPI, which hold up the rank: what a peer waits for then goes on.
    return ProgressOfAnyThread{
        .begin = [runtime = context.runtime, device = context.device()] { runtime->bind_thread(device); },
        .advance = [worker = worker(context)] { (void)worker->progress(); }};
  }

 private:
  std::shared_ptr<ucx::RankWorker> worker(const RankContext& context) const { return ucx::worker_of(context, own_); }

  mutable std::shared_ptr<void> own_;  // where the context keeps nothing
};

}  // namespace

std::unique_ptr<Transport> make_ucx_transport() { return std::make_unique<UcxTransport>(); }

}  // namespace linkgauge
