#include "transport/nvshmem/pe.h"

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/wire.h"
#include "transport/agreement.h"

namespace linkgauge::nvshmem {
namespace {

constexpr std::size_t kAlignment = 512;  // of the runtime's own allocations
constexpr std::size_t kMostTeams = 12;   // NVSHMEM has room for 32 (NVSHMEM_MAX_TEAMS), and takes several itself

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// What a rank tells the others before a case.
struct Said {
  std::size_t bytes = 0;
  char version[16] = {};
  PeRange team;
  UniqueId id;  // rank 0's, where NVSHMEM has not begun
};

}  // namespace

PeRange range_of(const std::vector<int>& ranks) {
  if (ranks.empty()) return {};
  const int stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  if (stride < 1) return {};
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != stride) return {};
  }
  return {ranks[0], stride, static_cast<std::int32_t>(ranks.size())};
}

Pe::~Pe() {
  collectives_.clear();
  kernels_.reset();
  if (!begun_) return;
  try {
    runtime_->bind_thread(device_);
    calls().nvshmemx_hostlib_finalize();
  } catch (const Error&) {  // the device is gone: NVSHMEM could not end either
  }
}

void Pe::meet(const RankContext& launch, const std::vector<std::size_t>& sizes, const PeRange& team,
              const std::string& unfit) {
  Said mine;
  mine.team = team;
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

  why_not_.clear();
  std::size_t most_bytes = 0;
  std::vector<PeRange> teams;
  UniqueId id;
  const std::vector<Bytes> all = launch.group->exchange(WireWriter().value(mine).rest(reason).message(), {});
  for (std::size_t rank = 0; rank < all.size() && why_not_.empty(); ++rank) {
    WireReader reader(all[rank]);
    const auto said = reader.value<Said>();
    if (rank == 0) id = said.id;
    most_bytes = std::max(most_bytes, said.bytes);
    if (std::find(teams.begin(), teams.end(), said.team) == teams.end()) teams.push_back(said.team);
    const std::string theirs = text_of(reader.rest());
    const std::string who = "rank " + std::to_string(rank);
    if (!theirs.empty()) {
      why_not_ = who + ": " + theirs;
    } else if (std::strcmp(said.version, mine.version) != 0) {
      why_not_ = "all ranks must load one version of NVSHMEM: rank " + std::to_string(launch.rank()) + " has " +
                 mine.version + ", " + who + " has " + said.version +
                 "; fix: one installation on every node, or LD_LIBRARY_PATH to it";
    }
  }
  if (!why_not_.empty()) return;
  if (!begun_) begin(launch, id);
  if (most_bytes > heap_bytes_) grow(most_bytes);
  make_teams(launch, teams);
}

void Pe::begin(const RankContext& launch, UniqueId id) {
  runtime_ = launch.runtime;
  device_ = launch.device();
  number_ = launch.rank();
  pes_ = launch.size();
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
                      std::to_string(device_) + "; set NVSHMEM_DEBUG=INFO to see why");
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

// All PEs split alike, in one order; those that were used longest ago go first, where not this case's.
void Pe::make_teams(const RankContext& launch, const std::vector<PeRange>& wanted) {
  std::vector<PeRange> lacking;
  for (const PeRange& range : wanted) {
    if (range.size == 0 || range == PeRange{0, 1, pes_}) continue;
    const auto known = std::find_if(teams_.begin(), teams_.end(), [&](const auto& one) { return one.first == range; });
    if (known == teams_.end()) {
      lacking.push_back(range);
    } else {
      std::rotate(known, known + 1, teams_.end());
    }
  }
  if (lacking.empty() || calls().nvshmem_team_split_strided == nullptr || calls().nvshmem_team_destroy == nullptr)
    return;
  if (launch.group->largest_of(takes_turns() ? 1 : 0, {}) != 0) return;  // where none may wait there is no collective
  runtime_->bind_thread(device_);
  for (const PeRange& range : lacking) {
    const bool spare = !teams_.empty() && std::find(wanted.begin(), wanted.end(), teams_[0].first) == wanted.end();
    if (spare && teams_.size() >= kMostTeams) {
      if (teams_[0].second != kNoTeam) calls().nvshmem_team_destroy(teams_[0].second);
      teams_.erase(teams_.begin());
    }
    Team team = kNoTeam;
    library_->check(
        calls().nvshmem_team_split_strided(kTeamOfAll, range.first, range.stride, range.size, nullptr, 0, &team),
        "nvshmem_team_split_strided", device_);
    teams_.emplace_back(range, team);
  }
}

Team Pe::team_of(const PeRange& range) const {
  if (range == PeRange{0, 1, pes_}) return kTeamOfAll;
  for (const auto& [known, team] : teams_) {
    if (known == range) return team;
  }
  return kNoTeam;
}

void Pe::load_kernels(const RankContext& context) {
  one_of_a_node_first(context, [&] {
    if (!kernels_) kernels_ = std::make_unique<Kernels>(*runtime_, device_, *library_);
  });
}

const CollectiveKernel& Pe::load_collective(const RankContext& context, const CollectiveCode& code) {
  std::unique_ptr<CollectiveKernel>& kept = collectives_[code.kernel];
  one_of_a_node_first(context, [&] {
    if (!kept) kept = std::make_unique<CollectiveKernel>(*runtime_, device_, *library_, code);
  });
  return *kept;
}

std::size_t Pe::offset_of(const void* data) const {
  return static_cast<std::size_t>(static_cast<const std::byte*>(data) - heap_);
}

}  // namespace linkgauge::nvshmem
