#include "transport/nvshmem/kernels.h"

#include <algorithm>

#include "base/errors.h"
#include "base/patterns.h"
#include "kernels/kernel_source.h"

namespace linkgauge::nvshmem {
namespace {

constexpr char kPut[] = "lg_nvshmem_put";
constexpr char kPingpong[] = "lg_nvshmem_pingpong";
constexpr std::size_t kLeastPart = std::size_t{16} << 10;  // of a message that several blocks put
constexpr std::size_t kUnit = 16;                          // what a thread stores at once
constexpr int kMostBlocks = 64;                            // where the case names none
constexpr unsigned kWarpThreads = 32;
constexpr unsigned kMostBlockThreads = 512;
constexpr unsigned kWarpsOfBlock = 8;
constexpr unsigned kThreadsOfBlock = 128;
constexpr std::int32_t kPlainWord = 3;  // beside Scope's numbers
constexpr unsigned kCollectiveThreads = 512;

std::size_t part_of(std::size_t bytes, Scope scope, int blocks) {
  if (scope != Scope::kBlock) return std::max<std::size_t>(bytes, 1);
  const auto most = static_cast<std::size_t>(blocks > 0 ? blocks : kMostBlocks);
  const std::size_t part = std::max(kLeastPart, (bytes + most - 1) / most);
  return (part + kUnit - 1) / kUnit * kUnit;
}

unsigned block_threads(std::size_t bytes) {
  const auto useful = static_cast<unsigned>(std::min<std::size_t>(bytes / kUnit + 1, kMostBlockThreads));
  return (useful + kWarpThreads - 1) / kWarpThreads * kWarpThreads;
}

}  // namespace

LinkedModule::LinkedModule(DeviceRuntime& runtime, int device, const Library& library, const std::string& text)
    : runtime_(&runtime), device_(device), library_(&library) {
  linked_ = runtime.link_kernels(device, {text, "", "nvshmem.h", "libnvshmem_device.a", "NVSHMEM " + library.version(),
                                          "pip install nvidia-nvshmem-cu13 (or -cu12, for a driver of CUDA 12)"});
  runtime.bind_thread(device);
  library.check(library.calls().nvshmemx_cumodule_init(linked_->module()), "nvshmemx_cumodule_init", device);
}

LinkedModule::~LinkedModule() {
  try {
    runtime_->bind_thread(device_);
    (void)library_->calls().nvshmemx_cumodule_finalize(linked_->module());
  } catch (const Error&) {  // the device is gone, and the module with it
  }
}

Kernels::Kernels(DeviceRuntime& runtime, int device, const Library& library)
    : runtime_(&runtime),
      module_(runtime, device, library, linked_text(kPut)),
      put_(module_.kernel(kPut)),
      pingpong_(module_.kernel(kPingpong)) {}

std::uint64_t Kernels::parts_of(std::size_t bytes, Scope scope, int blocks) {
  const std::size_t part = part_of(bytes, scope, blocks);
  return std::max<std::uint64_t>((bytes + part - 1) / part, 1);
}

LaunchShape Kernels::shape_of(std::uint64_t units, std::size_t part_bytes, Scope scope, int blocks) {
  const auto least = [](std::uint64_t a, std::uint64_t b) { return static_cast<unsigned>(std::min(a, b)); };
  unsigned threads = block_threads(part_bytes);
  std::uint64_t takers = 1;  // of units at once, of one block
  if (scope == Scope::kWarp) takers = least(units, kWarpsOfBlock);
  if (scope == Scope::kThread) takers = least(units, kThreadsOfBlock);
  if (scope == Scope::kWarp) threads = static_cast<unsigned>(takers) * kWarpThreads;
  if (scope == Scope::kThread) threads = static_cast<unsigned>(takers);
  const std::uint64_t most = static_cast<std::uint64_t>(blocks > 0 ? blocks : kMostBlocks);
  return {least((units + takers - 1) / takers, most), threads, 0};
}

void Kernels::put(const Put& put, std::uint64_t messages, Scope scope, int blocks, StreamHandle stream) const {
  const std::uint64_t part = part_of(put.bytes, scope, blocks);
  const std::uint64_t units = messages * parts_of(put.bytes, scope, blocks);
  const LaunchShape shape = shape_of(units, std::min<std::size_t>(part, put.bytes), scope, blocks);
  runtime_->launch_with(put_, shape, stream, put.target, put.source, std::uint64_t{put.bytes}, part, messages,
                        put.signal, std::int32_t{put.pe}, static_cast<std::int32_t>(scope));
}

void Kernels::pingpong(const Put& put, Signal* mine, const Rounds& rounds, const Options& by, std::uint64_t* gave_up,
                       StreamHandle stream) const {
  unsigned threads = by.scope == Scope::kWarp ? kWarpThreads : 1;
  if (by.scope == Scope::kBlock) threads = block_threads(put.bytes);
  runtime_->launch_with(pingpong_, {1, threads, 0}, stream, put.target, put.source, std::uint64_t{put.bytes},
                        put.signal, mine, rounds.first, rounds.rounds, std::int32_t{rounds.starts},
                        std::int32_t{put.pe}, by.plain ? kPlainWord : static_cast<std::int32_t>(by.scope),
                        rounds.spin_limit, gave_up);
}

std::string collective_name(Pattern pattern) {
  switch (pattern) {
    case Pattern::kBarrier:
      return "barrier";
    case Pattern::kAlltoall:
      return "alltoall";
    case Pattern::kAllgather:
      return "fcollect";
    case Pattern::kBroadcast:
      return "broadcast";
    case Pattern::kAllreduce:
      return "reduce";
    case Pattern::kReduceScatter:
      return "reducescatter";
    default:
      return "";
  }
}

CollectiveCode collective_code(Pattern pattern, Datatype datatype, ReduceOp op) {
  const auto code_of = [](const std::string& kernel, const std::string& type, const std::string& call) {
    const std::string name = "lg_nvshmem_" + kernel;
    return CollectiveCode{name, "#define LG_NAME " + name + "\n#define LG_TYPE " + type + "\n#define LG_CALL " + call +
                                    "\n" + linked_text("LG_NAME")};
  };
  const std::string own = collective_name(pattern);
  if (own.empty()) return {};
  if (!traits_of(pattern).reduces) return code_of(own, "char", "lg_" + own);
  const DatatypeNames names = names_of(datatype);
  if (names.word.empty() || op == ReduceOp::kAvg) return {};
  const std::string word(to_string(op));
  return code_of(std::string(names.word) + "_" + word + "_" + own, std::string(names.type),
                 "lg_" + own + "<LG_TYPE, RDXN_OPS_" + word + ">");
}

CollectiveKernel::CollectiveKernel(DeviceRuntime& runtime, int device, const Library& library,
                                   const CollectiveCode& code)
    : runtime_(&runtime), module_(runtime, device, library, code.text), kernel_(module_.kernel(code.kernel)) {}

LaunchShape CollectiveKernel::shape() { return {1, kCollectiveThreads, 0}; }

void CollectiveKernel::run(Team team, void* target, const void* source, std::uint64_t count, int root,
                           std::uint64_t rounds, StreamHandle stream) const {
  runtime_->launch_with(kernel_, shape(), stream, team, target, source, count, std::int32_t{root}, rounds);
}

}  // namespace linkgauge::nvshmem
