// NVSHMEM's copies between PEs, started by the host on a stream: by the source's rank (put, signal) or the target's
// (get); or by kernels of ours that put by themselves (device). What they reach is memory that NVSHMEM gave. A rank is
// one PE for the whole session. Its channels are in channels.cpp, NVSHMEM's own collectives in collective.cpp.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/patterns.h"
#include "traffic/layout.h"
#include "traffic/program.h"
#include "transport/nvshmem/channels.h"
#include "transport/nvshmem/collective.h"
#include "transport/nvshmem/pe.h"
#include "transport/nvshmem/pingpong.h"
#include "transport/operation.h"
#include "transport/registry.h"

namespace linkgauge {
namespace {

class NvshmemTransport final : public Transport {
 public:
  std::string_view name() const override { return "nvshmem"; }
  bool one_sided() const override { return true; }
  std::vector<std::string_view> variants() const override { return nvshmem::kVariants.names(); }
  bool begins_kernels(const Mechanism& by) const override {
    const nvshmem::Options options = options_of(by);
    return options.device() || options.collective();
  }
  bool brings_own(const CaseSpec& spec) const override {
    return spec.traffic.pattern == Pattern::kFlagPingpong && options_of(spec.mechanism).device();
  }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    const Mechanism& by = spec.mechanism;
    const std::optional<nvshmem::Options> options = nvshmem::kVariants.read(by.variant);
    if (!options) return nvshmem::kVariants.why_not(by.variant);
    if (by.blocks > 0 && !options->device())
      return "nvshmem's blocks are those of --variant device; leave --blocks out";
    if (std::string reason = why_no_algorithm(name(), by); !reason.empty()) return reason;
    if (std::string reason = why_not_via("NVSHMEM", by); !reason.empty()) return reason;
    if (std::string reason = why_no_pe(context); !reason.empty()) return reason;
    if (spec.places.source.kind != MemoryKind::kDevice || spec.places.target.kind != MemoryKind::kDevice) {
      return "NVSHMEM's memory is the devices'; leave --source-memory and --target-memory out";
    }
    if (options->collective()) {
      const nvshmem::Library& library = nvshmem::Library::load(context.libraries.folders);
      if (std::string reason = nvshmem::why_not_collective(spec, *options, library); !reason.empty()) return reason;
    }
    if (options->plain && !brings_own(spec))
      return "device+p puts a word alone, which is of flag_pingpong; messages are put by --variant device";
    if (brings_own(spec) && context.size() != 2) {
      return "nvshmem's flag_pingpong is between 2 ranks, the case has " + std::to_string(context.size());
    }
    if (traits_of(spec.traffic.pattern).kind == PatternKind::kDevice && !brings_own(spec)) {
      if (spec.traffic.pattern == Pattern::kFlagPingpong)
        return "flag_pingpong is between kernels; nvshmem's that put are --variant device";
      return "nvshmem moves messages between ranks, of which " + std::string(to_string(spec.traffic.pattern)) +
             " has none";
    }
    const bool collects = spec.traffic.program ? !spec.traffic.program->collectives.empty() : by.collectives == name();
    if (collects && (by.collectives.empty() || by.collectives == name())) {
      return "nvshmem carries an application's messages; name what carries its collectives, as in --collectives ccl";
    }
    if (context.group->node_count() > 1 && !options->waits_on_streams()) {
      return "nvshmem's put and get are signaled in a node's memory; between nodes --variant signal, device and "
             "collective are";
    }
    if (!context.lasting->contains(kKept)) return "";
    const nvshmem::Pe& pe = *pe_of(context);
    if (!pe.why_not().empty() || !options->waits_on_streams()) return pe.why_not();
    if (pe.takes_turns()) {
      return "NVSHMEM lets no rank wait on a stream where ranks share a GPU without MPS; leave --variant " +
             by.variant + " out, or start MPS";
    }
    if (options->collective() && pe.team_of(nvshmem::range_of(spec.places.rank_list)) == nvshmem::kNoTeam)
      return "NVSHMEM made no team of the case's PEs";
    return "";
  }

  void meet(const RankContext& launch, const CaseSpec& spec, int rank) override {
    if (!(*launch.lasting)[kKept]) (*launch.lasting)[kKept] = std::make_shared<nvshmem::Pe>();
    const nvshmem::Options options = options_of(spec.mechanism);
    const int ranks = static_cast<int>(spec.places.rank_list.size());
    std::vector<std::size_t> sizes;
    nvshmem::PeRange team;
    if (rank >= 0 && options.collective()) {
      sizes = nvshmem::collective_sizes(spec, ranks, rank);
      team = nvshmem::range_of(spec.places.rank_list);
    } else if (rank >= 0) {
      sizes = brings_own(spec) ? nvshmem::pingpong_sizes() : lent_sizes(spec, ranks, rank);
      if (options.signals()) sizes.push_back(nvshmem::kSignalBytes);
    }
    pe_of(launch)->meet(launch, sizes, team, why_no_pe(launch));
  }

  Buffer make_buffer(const RankContext& context, const CaseSpec&, MemoryKind, std::size_t bytes,
                     const AllocateOptions&) const override {
    return pe_of(context)->take(bytes);
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const Flows& flows) override {
    return nvshmem::stream_channels(context, spec, flows, pe_of(context));
  }

  std::unique_ptr<Operation> collective(const RankContext& context, const CaseSpec& spec) override {
    const nvshmem::Options options = options_of(spec.mechanism);
    if (options.collective()) return nvshmem::make_collective(*this, context, spec, options, pe_of(context));
    return brings_own(spec) ? nvshmem::make_pingpong(context, spec, options, pe_of(context)) : nullptr;
  }

 private:
  static constexpr const char* kKept = "nvshmem";

  // Of a variant that supports() refuses: the default's.
  static nvshmem::Options options_of(const Mechanism& by) {
    return nvshmem::kVariants.read(by.variant).value_or(nvshmem::Options{});
  }
  static std::shared_ptr<nvshmem::Pe> pe_of(const RankContext& context) {
    return std::static_pointer_cast<nvshmem::Pe>(context.lasting->at(kKept));
  }

  static std::string why_no_pe(const RankContext& context) {
    if (context.runtime->name() != "cuda") {
      return "nvshmem moves data between NVIDIA GPUs: these are " + std::string(context.runtime->name()) + " devices";
    }
    if (context.group->one_process()) return "NVSHMEM has one PE a process; leave out --threads";
    try {
      (void)nvshmem::Library::load(context.libraries.folders);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  }
};

}  // namespace

std::unique_ptr<Transport> make_nvshmem_transport() { return std::make_unique<NvshmemTransport>(); }

}  // namespace linkgauge
