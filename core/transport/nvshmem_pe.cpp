#include "transport/nvshmem_pe.h"

#include <algorithm>
#include <cstring>

#include "errors.h"
#include "transport/agreement.h"

namespace linkgauge::nvshmem {
namespace {

constexpr std::size_t kAlignment = 512;  // of the runtime's own allocations

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// What a rank tells the others before a case.
struct Said {
  std::size_t bytes = 0;
  char version[16] = {};
  UniqueId id;  // rank 0's, where NVSHMEM has not begun
};

}  // namespace

Pe::~Pe() {
  kernels_.reset();
  if (!begun_) return;
  try {
    runtime_->bind_thread(device_);
    calls().nvshmemx_hostlib_finalize();
  } catch (const Error&) {  // the device is gone: NVSHMEM could not end either
  }
}

void Pe::meet(const RankContext& launch, const std::vector<std::size_t>& sizes, const std::string& unfit) {
  Said mine;
  std::string reason = unfit;
  try {
    if (reason.empty() && library_ == nullptr) library_ = &Library::load(launch.libraries.folders);
  } catch (const Unsupported& error) {
    reason = error.what();
  }
  if (reason.empty()) {
    for (const std::size_t size : sizes) mine.bytes += aligned(size);
    (void)library_->version().copy(mine.version, sizeof mine.version - 1);
    if (!begun_ && launch.rank() == 0) {
      launch.runtime->bind_thread(launch.device());
      mine.id.version = kFirstLayout<UniqueId>;
      library_->check(calls().nvshmemx_get_uniqueid(&mine.id), "nvshmemx_get_uniqueid", launch.device());
    }
  }
  std::vector<std::byte> message(sizeof mine + reason.size());
  std::memcpy(message.data(), &mine, sizeof mine);
  if (!reason.empty()) std::memcpy(message.data() + sizeof mine, reason.data(), reason.size());

  why_not_.clear();
  std::size_t most_bytes = 0;
  UniqueId id;
  const auto all = launch.group->exchange(message, {});
  for (std::size_t rank = 0; rank < all.size() && why_not_.empty(); ++rank) {
    Said said;
    std::memcpy(&said, all[rank].data(), sizeof said);
    if (rank == 0) id = said.id;
    most_bytes = std::max(most_bytes, said.bytes);
    const std::string theirs(reinterpret_cast<const char*>(all[rank].data()) + sizeof said,
                             all[rank].size() - sizeof said);
    const std::string who = "rank " + std::to_string(rank);
    if (!theirs.empty()) {
      why_not_ = who + ": " + theirs;
    } else if (std::strcmp(said.version, mine.version) != 0) {
      why_not_ = "all ranks must load one version of NVSHMEM: rank " + std::to_string(launch.rank()) + " has " +
                 mine.version + ", " + who + " has " + said.version +
                 "; remedy: one installation on every node, or LD_LIBRARY_PATH to it";
    }
  }
  if (!why_not_.empty()) return;
  if (!begun_) begin(launch, id);
  if (most_bytes > heap_bytes_) grow(most_bytes);
}

void Pe::begin(const RankContext& launch, UniqueId id) {
  runtime_ = launch.runtime;
  device_ = launch.device();
  number_ = launch.rank();
  runtime_->bind_thread(device_);  // NVSHMEM takes the device that is current
  InitAttributes attributes;
  attributes.version = kFirstLayout<InitAttributes>;
  attributes.arguments.version = kFirstLayout<InitArguments>;
  attributes.arguments.unique_id.version = kFirstLayout<UniqueIdArguments>;
  library_->check(calls().nvshmemx_set_attr_uniqueid_args(number_, launch.size(), &id, &attributes),
                  "nvshmemx_set_attr_uniqueid_args", device_);
  library_->check(calls().nvshmemx_hostlib_init_attr(kInitWithUniqueId, &attributes), "nvshmemx_hostlib_init_attr",
                  device_);
  begun_ = true;
}

void Pe::grow(std::size_t bytes) {
  if (!taken_.empty()) throw MemoryError("buffers of a case that failed are still taken of NVSHMEM's memory");
  runtime_->bind_thread(device_);
  if (heap_ != nullptr) calls().nvshmem_free(heap_);
  heap_bytes_ = 0;
  heap_ = static_cast<std::byte*>(calls().nvshmem_malloc(bytes));
  if (heap_ == nullptr) {
    throw MemoryError("nvshmem_malloc gave none of " + std::to_string(bytes) + " bytes on device " +
                      std::to_string(device_) + "; NVSHMEM_DEBUG=INFO tells why");
  }
  heap_bytes_ = bytes;
}

Buffer Pe::take(std::size_t bytes) {
  std::size_t place = 0;
  for (const auto& [begin, end] : taken_) {
    if (begin - place >= bytes) break;
    place = end;
  }
  if (place + bytes > heap_bytes_)
    throw MemoryError("NVSHMEM's memory for this case has no " + std::to_string(bytes) + " bytes left");
  taken_[place] = place + aligned(bytes);
  return Buffer(at(place), device_, MemoryKind::kDevice, bytes, [this](void* data) { taken_.erase(offset_of(data)); });
}

const char* Pe::way_to(std::size_t offset, int pe) const {
  return calls().nvshmem_ptr(at(offset), pe) != nullptr ? "a peer's memory" : "its remote transport";
}

void Pe::load_kernels(const RankContext& context) {
  Group& node = context.group->on_node();
  std::string reason;
  const auto load = [&] {
    if (kernels_) return;
    try {
      context.tell_compiling(true);
      kernels_ = std::make_unique<Kernels>(*runtime_, device_, *library_);
    } catch (const Unsupported& error) {
      reason = error.what();
    }
    context.tell_compiling(false);
  };
  if (node.rank() == 0) load();
  node.barrier({}, Waiting::kSleep);
  if (node.rank() != 0) load();
  agree_or_throw(*context.group, reason);
}

std::size_t Pe::offset_of(const void* data) const {
  return static_cast<std::size_t>(static_cast<const std::byte*>(data) - heap_);
}

}  // namespace linkgauge::nvshmem
