// Groups of processes: regions are ranges of one file in shared memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/errors.h"
#include "base/not_copied.h"
#include "base/waiting.h"
#include "group/agreement.h"
#include "group/group.h"
#include "group/multi_node_group.h"
#include "group/region_group.h"

namespace linkgauge {
namespace {

constexpr std::size_t kPage = 65536;  // the largest page size of the machines we know; offsets are multiples of it
constexpr std::uint64_t kMagic = 0x6c6b676175676531;  // "lkgauge1"
constexpr auto kOpenTimeout = std::chrono::seconds(60);

std::size_t whole_file_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::string error_text() { return std::strerror(errno); }

// At the start of the file.
struct FileHead {
  std::uint64_t magic;
  std::atomic<std::uint64_t> end;  // where the next region goes. The file is sparse and offsets are never reused
};
// At the start of each region, before the group's own header.
struct RegionHead {
  std::atomic<std::uint32_t> holders;
};
constexpr std::size_t kHeadBytes = 64;
static_assert(sizeof(FileHead) <= kHeadBytes && sizeof(RegionHead) <= kHeadBytes);

std::size_t region_file_bytes(int size) { return whole_file_pages(kHeadBytes + RegionGroup::region_bytes(size)); }

class SegmentFile : NotCopied {
 public:
  explicit SegmentFile(int fd) : fd_(fd) {}
  ~SegmentFile() {
    if (head_ != nullptr) munmap(head_, kPage);
    close(fd_);
  }

  int fd() const { return fd_; }

  FileHead& head() {
    if (head_ == nullptr) head_ = map(0, kPage);
    return *static_cast<FileHead*>(head_);
  }

  // Makes the file as long, and never shorter, whoever else does so now. Its pages are taken here, where a full file
  // system is an error: at a first touch it is SIGBUS.
  void take(std::size_t offset, std::size_t bytes) const {
    int error = fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    if (error == EOPNOTSUPP) error = posix_fallocate(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    if (error == 0) return;
    throw MemoryError("no shared memory for a group of processes: " + std::to_string(bytes) +
                      " bytes: " + std::strerror(error));
  }

  void* map(std::size_t offset, std::size_t bytes) const {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(offset));
    if (memory == MAP_FAILED) throw MemoryError("mapping a group's shared memory: " + error_text());
    return memory;
  }

  void give_back(std::size_t offset, std::size_t bytes) const noexcept {
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  }

 private:
  int fd_;
  void* head_ = nullptr;
};

class FileRegion final : public Region {
 public:
  FileRegion(std::shared_ptr<SegmentFile> file, std::size_t offset, std::size_t bytes)
      : file_(std::move(file)), offset_(offset), bytes_(bytes), memory_(file_->map(offset, bytes)) {}
  ~FileRegion() override {
    const bool last = head().holders.fetch_sub(1, std::memory_order_acq_rel) == 1;
    munmap(memory_, bytes_);
    if (last) file_->give_back(offset_, bytes_);
  }

  std::byte* base() const override { return static_cast<std::byte*>(memory_) + kHeadBytes; }
  void set_up(int size) const {
    new (memory_) RegionHead{static_cast<std::uint32_t>(size)};
    RegionGroup::set_up(base());
  }

 private:
  RegionHead& head() const { return *static_cast<RegionHead*>(memory_); }

  std::shared_ptr<SegmentFile> file_;
  std::size_t offset_;
  std::size_t bytes_;
  void* memory_;
};

class FileRegionMaker final : public RegionMaker {
 public:
  explicit FileRegionMaker(std::shared_ptr<SegmentFile> file) : file_(std::move(file)) {}
  bool one_process() const override { return false; }

  std::shared_ptr<Region> make(RegionGroup& parent, bool member, bool first, int member_count) override {
    const std::size_t bytes = region_file_bytes(member_count);
    std::shared_ptr<FileRegion> region;
    const std::uint64_t place = told_by_first(parent, first, [&] {
      const std::uint64_t offset = file_->head().end.fetch_add(bytes);
      file_->take(offset, bytes);
      region = std::make_shared<FileRegion>(file_, offset, bytes);
      region->set_up(member_count);
      return offset;
    });
    std::string reason;
    if (member && !first) {
      try {
        region = std::make_shared<FileRegion>(file_, place, bytes);
      } catch (const MemoryError& error) {
        reason = error.what();
      }
    }
    reason = first_reason(parent, reason);
    if (!reason.empty()) throw MemoryError(reason);
    return region;
  }

 private:
  std::shared_ptr<SegmentFile> file_;
};

bool is_in_memory(int fd) {
  constexpr long kTmpfs = 0x01021994;  // linux/magic.h
  struct statfs facts {};
  return fstatfs(fd, &facts) == 0 && static_cast<long>(facts.f_type) == kTmpfs;
}

// The file under the name `unfinished`. Where its folder is on a disk, whose writing back would stall a barrier now and
// then, the name is a link to memory without a name (as device/host_memory.h has it, with the same way out for ranks
// that do not see this process).
int create_file(const std::string& unfinished) {
  unlink(unfinished.c_str());
  const int plain = open(unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (plain < 0) throw MemoryError("cannot create " + unfinished + " for the group's shared memory: " + error_text());
  if (is_in_memory(plain) || std::getenv("LINKGAUGE_SHARE_DIR") != nullptr) return plain;
  const int memory = static_cast<int>(syscall(SYS_memfd_create, "linkgauge-group", 1U /* MFD_CLOEXEC */));
  const std::string there = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memory);
  const int again = memory < 0 ? -1 : open(there.c_str(), O_RDWR | O_CLOEXEC);
  if (again < 0) {
    if (memory >= 0) close(memory);
    return plain;
  }
  close(again);
  close(plain);
  unlink(unfinished.c_str());
  if (symlink(there.c_str(), unfinished.c_str()) != 0) throw MemoryError("cannot link " + unfinished);
  return memory;
}

// The first rank of a node makes the file whole before it gets its name, so whoever can open it can use it.
std::shared_ptr<SegmentFile> create_segment(const std::string& path, int size) {
  const std::string unfinished = path + ".new";
  auto file = std::make_shared<SegmentFile>(create_file(unfinished));
  const std::size_t end = kPage + region_file_bytes(size);
  file->take(0, end);
  file->head().magic = kMagic;
  file->head().end = end;
  // Its mapping goes, its holders stay: each rank, this one too, maps it for itself.
  auto* memory = static_cast<std::byte*>(file->map(kPage, region_file_bytes(size)));
  new (memory) RegionHead{static_cast<std::uint32_t>(size)};
  RegionGroup::set_up(memory + kHeadBytes);
  munmap(memory, region_file_bytes(size));
  if (rename(unfinished.c_str(), path.c_str()) != 0) throw MemoryError("cannot name " + path + ": " + error_text());
  return file;
}

std::shared_ptr<SegmentFile> open_segment(const std::string& path) {
  int fd = -1;
  const auto opened = [&] {
    fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
      throw MemoryError("cannot open " + path + " for the group's shared memory: " + error_text());
    return fd >= 0;
  };
  if (!look_until(opened, std::chrono::milliseconds(1), kOpenTimeout))
    throw PeerError("the first rank of this node did not make " + path + " within 60 s");
  auto file = std::make_shared<SegmentFile>(fd);
  if (file->head().magic != kMagic) throw CallerError(path + " is not a group's shared memory");
  return file;
}

}  // namespace

std::shared_ptr<Group> make_process_group(const ProcessGroupOptions& options) {
  const int size = static_cast<int>(options.node_of_rank.size());
  if (options.rank < 0 || options.rank >= size) {
    throw CallerError("rank " + std::to_string(options.rank) + " of a group of " + std::to_string(size) + " processes");
  }
  // Nodes are numbered by first appearance, whatever numbers the caller uses.
  std::vector<int> names;
  std::vector<int> nodes;
  for (const int name : options.node_of_rank) {
    const auto found = std::find(names.begin(), names.end(), name);
    nodes.push_back(static_cast<int>(found - names.begin()));
    if (found == names.end()) names.push_back(name);
  }
  const int node = nodes[static_cast<std::size_t>(options.rank)];
  int local_rank = 0;
  int local_size = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (nodes[static_cast<std::size_t>(rank)] != node) continue;
    if (rank < options.rank) ++local_rank;
    ++local_size;
  }
  if (names.size() > 1 && !options.link) {
    throw CallerError("a group on " + std::to_string(names.size()) + " nodes needs an MPI library between them");
  }

  std::string path = options.segment_path;
  if (names.size() > 1) path.append(1, '.').append(std::to_string(node));
  const auto file = local_rank == 0 ? create_segment(path, local_size) : open_segment(path);
  auto region = std::make_shared<FileRegion>(file, kPage, region_file_bytes(local_size));
  auto local =
      std::make_unique<RegionGroup>(std::move(region), std::make_shared<FileRegionMaker>(file), local_rank, local_size);
  local->barrier({}, Waiting::kSpin);
  if (local_rank == 0) unlink(path.c_str());
  if (names.size() == 1) return local;
  std::vector<int> launch_ranks;
  for (int rank = 0; rank < size; ++rank) launch_ranks.push_back(rank);
  return std::make_shared<MultiNodeGroup>(std::move(local), options.rank, std::move(launch_ranks), std::move(nodes),
                                          options.link);
}

}  // namespace linkgauge
