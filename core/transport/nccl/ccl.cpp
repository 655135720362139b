// NCCL, RCCL and, on host devices, oneCCL: collectives of the library's own, grouped sends and receives where it has no
// call for the pattern.
//
// Everything is queued on one stream of this rank's device; post() returns when the library has queued it, or, in the
// variant graph, when a graph that holds what the library queued once has been. Sends return
// on the sender when its buffer is free, so where the sender keeps the time a flag in shared memory says that the
// receiver has all bytes. One communicator for each set of devices, kept from case to case; cases with settings of
// their own have one that is made by these, and given up when a case has others. Variant device calls none of the
// library's operations: it takes the library's memory alone.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/patterns.h"
#include "transport/agreement.h"
#include "transport/memory/kernel_allreduce.h"
#include "transport/nccl/api.h"
#include "transport/nccl/communicator.h"
#include "transport/nccl/config.h"
#include "transport/nccl/device.h"
#include "transport/nccl/messages.h"
#include "transport/nccl/operation.h"
#include "transport/nccl/options.h"
#include "transport/peer_memory.h"
#include "transport/registry.h"

namespace linkgauge {

namespace {

// The case as transport kernel has it, of memory in windows.
CaseSpec of_kernels(const CaseSpec& spec) {
  CaseSpec result = spec;
  result.mechanism.transport = "kernel";
  result.mechanism.buffer = "symmetric";
  return result;
}

class CclTransport final : public Transport {
 public:
  std::string_view name() const override { return "ccl"; }
  bool begins_kernels(const Mechanism& by) const override {
    const std::optional<CclOptions> options = read_ccl_options(by);
    return !options || !options->own_kernels || !options->kernel || !options->kernel->resident;
  }
  bool takes_settings() const override { return true; }
  std::vector<std::string_view> variants() const override { return ccl_variants(); }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    const std::string_view runtime = context.runtime->name();
    const bool on_host = runtime == "host";
    if (runtime != "cuda" && runtime != "hip" && !on_host)
      return "ccl moves data between GPUs or host devices: these are " + std::string(runtime) + " devices";
    if (on_host) {
      if (std::string reason = why_not_oneccl(context, spec); !reason.empty()) return reason;
    }
    std::map<int, int> ranks_of;  // each node has a device of that ordinal
    for (const int device : context.device_of_rank) {
      if (!on_host && ++ranks_of[device] > context.group->node_count()) {
        return "NCCL refuses two ranks on one device: use --ranks-per-device 1";
      }
    }
    if (spec.places.source.kind != MemoryKind::kDevice || spec.places.target.kind != MemoryKind::kDevice) {
      return "ccl is measured on device memory only";
    }
    if (spec.traffic.pattern == Pattern::kBidirectional && context.size() == 1) {
      return "ccl sends one message at a time to its own rank: both ways inside one device are another transport's";
    }
    if (traits_of(spec.traffic.pattern).side_by_side) {
      return std::string(to_string(spec.traffic.pattern)) + " needs an even number of ranks, 4 or more: two pairs";
    }
    const std::optional<CclOptions> options = read_ccl_options(spec.mechanism);
    const bool own_kernels = options && options->own_kernels;
    if (spec.traffic.pattern == Pattern::kBarrier && !own_kernels) {
      return "NCCL has no barrier of the host's; an allreduce of 4 bytes is what its users take, and kernels have one: "
             "--variant device";
    }
    if (traits_of(spec.traffic.pattern).kind == PatternKind::kDevice) {
      return "ccl moves data between ranks: " + std::string(to_string(spec.traffic.pattern)) + " is within one device";
    }
    if (!options) return why_no_ccl_variant(spec.mechanism.variant);
    if (options->graph) {
      if (std::string reason = context.runtime->why_no_graphs(); !reason.empty()) return reason;
    }
    if (options->high_priority) {
      if (std::string reason = context.runtime->why_no_stream_priorities(); !reason.empty()) return reason;
    }
    try {
      const ccl::Library& library = load(context);
      if (own_kernels) return why_not_own_kernels(context, library, spec, *options);
      if (std::string reason = why_not_buffer(library, spec); !reason.empty()) return reason;
      if (std::string reason = why_not_settings(library, spec, *options); !reason.empty()) return reason;
      return traits_of(spec.traffic.pattern).reduces ? why_not_datatype(context, library, spec.traffic.datatype)
                                                     : std::string();
    } catch (const Unsupported& reason) {
      return reason.what();
    }
  }

  // Only memory of the library's own making can be a symmetric window; nccl-tests takes it for all its buffers.
  Buffer make_buffer(const RankContext& context, const CaseSpec& spec, MemoryKind kind, std::size_t bytes,
                     const AllocateOptions& options) const override {
    const std::optional<CclBuffer> buffer = ccl_buffer_of(spec.mechanism);
    if (buffer != CclBuffer::kSymmetric && buffer != CclBuffer::kAllocated)
      return Transport::make_buffer(context, spec, kind, bytes, options);
    context.runtime->bind_thread(context.device());
    const ccl::Library& library = load(context);
    void* memory = nullptr;
    library.check(library.calls().ncclMemAlloc(&memory, bytes), "ncclMemAlloc", nullptr, context.device());
    return Buffer(memory, context.device(), kind, bytes,
                  [free_memory = library.calls().ncclMemFree](void* given) { (void)free_memory(given); });
  }

  // A window is all ranks' at once: each exposes one buffer to all others, or none does.
  std::vector<PeerBuffer> peers(const RankContext& context, const CaseSpec& /*spec*/, const Flows& flows,
                                ExposedEnd end) override {
    const Buffer* exposed = nullptr;
    for (const Flow& flow : flows) {
      const Buffer* const buffer = end == ExposedEnd::kTarget ? flow.target_buffer : flow.source_buffer;
      if ((end == ExposedEnd::kTarget ? flow.target : flow.source) == context.rank()) exposed = buffer;
    }
    std::vector<PeerBuffer> result(flows.size());
    if (exposed == nullptr) return result;
    const auto window = std::make_shared<CclWindow>(context, CclCommunicator::of(load(context), context), *exposed);
    agreeing(*context.group, {}, [&] {
      for (std::size_t i = 0; i < flows.size(); ++i) {
        const int owner = end == ExposedEnd::kTarget ? flows[i].target : flows[i].source;
        if (owner != context.rank()) result[i] = {window->at(owner), context.device_of(owner), window, exposed->size()};
      }
    });
    return result;
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& /*spec*/,
                                                const Flows& flows) override {
    return connect_ccl(context, load(context), flows);
  }

  std::unique_ptr<Operation> collective(const RankContext& context, const CaseSpec& spec) override {
    if (spec.traffic.pattern == Pattern::kBarrier) return make_lsa_barrier(*this, context, spec, load(context));
    const CclOptions options = read_ccl_options(spec.mechanism).value();
    if (!options.own_kernels) return make_ccl_operation(*this, context, spec, load(context), options);
    const KernelOptions kernel = options.kernel.value();
    if (!options.lsa()) return make_kernel_allreduce(*this, context, of_kernels(spec), kernel);
    return make_lsa_allreduce(*this, context, of_kernels(spec), load(context), kernel.pushes(spec.mechanism.initiator));
  }

 private:
  // What oneCCL's CPU library, which has no streams, does not do (2022.2).
  static std::string why_not_oneccl(const RankContext& context, const CaseSpec& spec) {
    if (context.size() > 1 && context.group->one_process())
      return "oneCCL's ranks are processes of their own: leave out --threads";
    if (spec.traffic.pattern == Pattern::kApplication)
      return "oneCCL's messages on the CPU are done when their call returns, so that ranks that send first never end: "
             "use --collectives ccl";
    if (!spec.mechanism.variant.empty()) return "oneCCL on the CPU has no variant: its calls are done when they return";
    if (spec.timing.clock == ClockKind::kEvent)
      return "oneCCL on the CPU has no stream to take times on: leave out --clock";
    if (ccl_buffer_of(spec.mechanism) != CclBuffer::kPlain) return "oneCCL on the CPU takes plain buffers only";
    if (traits_of(spec.traffic.pattern).reduces && spec.traffic.op == ReduceOp::kAvg)
      return "oneCCL on the CPU has no average";
    return "";
  }

  static std::string why_not_datatype(const RankContext& context, const ccl::Library& library, Datatype datatype) {
    if (std::string reason = ccl::supports_datatype(library, datatype); !reason.empty()) return reason;
    if (library.product() != ccl::Product::kNccl || !ccl::is_fp8(datatype)) return "";
    for (const int device : context.device_of_rank) {
      constexpr std::string_view kPrefix = "sm_";
      constexpr int kFirst = 90;  // NCCL 2.28, enqueue.cc: "FP8 reduction support begins with sm90 capable devices."
      const std::string architecture = context.runtime->describe(device).architecture;
      if (architecture.rfind(kPrefix, 0) != 0 || std::atoi(architecture.c_str() + kPrefix.size()) >= kFirst) continue;
      return "NCCL reduces 8-bit floating point from sm_90 on: device " + std::to_string(device) + " is " +
             architecture;
    }
    return "";
  }

  static std::string why_not_own_kernels(const RankContext& context, const ccl::Library& library, const CaseSpec& spec,
                                         const CclOptions& options) {
    const Mechanism& by = spec.mechanism;
    const ccl::Table& calls = library.calls();
    if (calls.ncclGetPeerDevicePointer == nullptr || calls.ncclCommWindowRegister == nullptr ||
        calls.ncclMemAlloc == nullptr) {
      return std::string(library.name()) + " " + library.version() +
             " gives no pointers to other ranks' memory: NCCL 2.29 or newer is needed";
    }
    if (context.group->node_count() > 1) return "variant device is of one node";
    if (spec.traffic.pattern == Pattern::kBarrier) {
      if (options.more_words) return "the barrier of variant device takes no further word";
      return why_not_lsa(context, library);
    }
    if (spec.traffic.pattern != Pattern::kAllreduce || by.algorithm.empty()) {
      return "variant device is a barrier, or an allreduce by our own kernels: --pattern allreduce --algorithm "
             "one_shot or two_shot";
    }
    if (options.lsa()) {
      if (std::string reason = why_not_lsa(context, library); !reason.empty()) return reason;
    }
    if (!by.buffer.empty()) return "variant device has buffers of NCCL's, in symmetric windows; leave --buffer out";
    if (!by.settings.empty()) return "settings are of NCCL's own kernels; leave them out with variant device";
    if (!options.kernel) return "variant device takes kernel's words, not '" + by.variant + "'";
    return why_not_kernel_allreduce(context, spec, *options.kernel);
  }

  static std::string why_not_settings(const ccl::Library& library, const CaseSpec& spec, const CclOptions& options) {
    const std::string settings = ccl_settings(spec.mechanism, options);
    if (settings.empty()) return "";
    if (options.zero_cta()) {
      if (std::string reason = why_not_copy_engines(library, spec); !reason.empty()) return reason;
    }
    const ccl::Configuration own(library, settings);  // which says what the library lacks
    if (own.of_call() == nullptr || takes_call_settings(library, spec, options)) return "";
    return "NCCL_ALGO, NCCL_PROTO and algSelection are settings of collectives' calls: " +
           std::string(to_string(spec.traffic.pattern)) + " is sends and receives here";
  }

  // NCCL 2.28's collectives by copy engines, of those patterns for which windows are made here.
  static std::string why_not_copy_engines(const ccl::Library& library, const CaseSpec& spec) {
    constexpr int kFirst = 22800;
    if (library.product() == ccl::Product::kNccl && library.version_code() < kFirst)
      return "NCCL " + library.version() + " has no collectives by copy engines: NCCL 2.28 or newer is needed";
    if (spec.traffic.pattern != Pattern::kAllgather && spec.traffic.pattern != Pattern::kAlltoall)
      return "variant zero_cta is NCCL's collectives by copy engines: allgather and alltoall here, not " +
             std::string(to_string(spec.traffic.pattern));
    if (ccl_buffer_of(spec.mechanism) != CclBuffer::kSymmetric)
      return "variant zero_cta needs symmetric windows, without which NCCL takes kernels: --buffer symmetric";
    return "";
  }

  static std::string why_not_buffer(const ccl::Library& library, const CaseSpec& spec) {
    const ccl::Table& calls = library.calls();
    const std::string product = (library.rccl() ? "RCCL " : "NCCL ") + library.version();
    const std::optional<CclBuffer> buffer = ccl_buffer_of(spec.mechanism);
    if (!buffer)
      return "ccl knows buffer = plain, allocated, registered or symmetric, not '" + spec.mechanism.buffer + "'";
    if (buffer == CclBuffer::kPlain) return "";
    if (buffer == CclBuffer::kRegistered) {
      if (calls.ncclCommRegister != nullptr && calls.ncclCommDeregister != nullptr) return "";
      return product + " cannot register buffers: NCCL 2.19 or newer is needed";
    }
    const bool allocates = calls.ncclMemAlloc != nullptr && calls.ncclMemFree != nullptr;
    if (buffer == CclBuffer::kAllocated)
      return allocates ? "" : product + " has no memory of its own to give: NCCL 2.19 or newer is needed";
    if (!allocates || calls.ncclCommWindowRegister == nullptr || calls.ncclCommWindowDeregister == nullptr)
      return product + " has no symmetric windows: NCCL 2.27 or newer is needed";
    // A window is made by all ranks together, with buffers of one size.
    if (spec.traffic.pattern == Pattern::kAllreduce || spec.traffic.pattern == Pattern::kAllgather ||
        spec.traffic.pattern == Pattern::kReduceScatter || spec.traffic.pattern == Pattern::kAlltoall) {
      return "";
    }
    return "symmetric windows are for allreduce, allgather, reduce_scatter and alltoall, where every rank has both "
           "buffers";
  }

  static const ccl::Library& load(const RankContext& context) {
    return ccl::Library::load(ccl::product_of(context.runtime->name()), context.libraries.ccl,
                              context.libraries.folders);
  }
};

}  // namespace

std::unique_ptr<Transport> make_ccl_transport() { return std::make_unique<CclTransport>(); }

}  // namespace linkgauge
