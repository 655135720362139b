#include "device/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/not_copied.h"
#include "base/wire.h"
#include "device/host_cpu.h"
#include "device/host_pages.h"
#include "device/host_placement.h"

namespace linkgauge {
namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14, absent from older C libraries' headers
#endif

std::string error_text(int error) { return std::string(std::strerror(error)); }

// Writes to each page, and leaves what is there: it may be another process's, which writes it as well.
void touch_pages(void* memory, std::size_t bytes) {
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return;
  for (std::size_t offset = 0; offset < bytes; offset += page_bytes()) {
    const std::atomic_ref<char> byte(static_cast<char*>(memory)[offset]);
    char found = byte.load(std::memory_order_relaxed);
    byte.compare_exchange_strong(found, found, std::memory_order_relaxed);
  }
}

// What travels to the other process: which file, and the proof that it is still the same file there.
struct HandleHead {
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t mapped_bytes;
};

class FileDescriptor : NotCopied {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bool proc_opens_own_descriptors() {
  const FileDescriptor file(static_cast<int>(syscall(SYS_memfd_create, "linkgauge-probe", 1U /* MFD_CLOEXEC */)));
  if (file.get() < 0) return false;
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.get());
  const FileDescriptor opened(open(path.c_str(), O_RDWR | O_CLOEXEC));
  return opened.get() >= 0;
}

}  // namespace

HostMemory::HostMemory() {
  const char* folder = std::getenv("LINKGAUGE_SHARE_DIR");
  if (folder != nullptr && *folder != '\0') {
    folder_ = folder;
  } else if (!proc_opens_own_descriptors()) {
    folder_ = "/dev/shm";
  }
}

HostMemory::~HostMemory() {
  for (const auto& [memory, block] : blocks_) give_back(memory, block);
}

std::size_t HostMemory::shareable_bytes(std::size_t free_bytes) const {
  if (folder_.empty()) return free_bytes;
  struct statvfs facts {};
  if (statvfs(folder_.c_str(), &facts) != 0) return free_bytes;
  return std::min<std::size_t>(free_bytes, facts.f_bavail * facts.f_frsize);
}

HostMemory::Block HostMemory::make_shared_file(std::size_t mapped_bytes) {
  Block block;
  block.mapped_bytes = mapped_bytes;
  if (folder_.empty()) {
    block.fd = static_cast<int>(syscall(SYS_memfd_create, "linkgauge", 1U /* MFD_CLOEXEC */));
    if (block.fd < 0) throw MemoryError("memfd_create: " + error_text(errno));
    block.path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(block.fd);
  } else {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = files_made_++;
    }
    block.path = folder_ + "/linkgauge-" + std::to_string(getpid()) + "-" +
                 std::to_string(reinterpret_cast<std::uintptr_t>(this)) + "-" + std::to_string(number);
    block.fd = open(block.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (block.fd < 0) throw MemoryError("cannot create shared memory " + block.path + ": " + error_text(errno));
  }
  return block;
}

void* HostMemory::allocate(MemoryKind kind, std::size_t bytes, int node, bool strict, bool huge_pages) {
  const std::size_t mapped = whole_pages(bytes);
  const bool shared = kind != MemoryKind::kPageable;
  const std::string what = std::to_string(bytes) + " bytes of " + std::string(to_string(kind)) + " memory";
  const std::size_t free_bytes = shared ? shareable_bytes(memory_now().free_bytes) : memory_now().free_bytes;
  if (mapped > free_bytes) throw MemoryError(what + " requested, " + std::to_string(free_bytes) + " bytes are free");

  Block block;
  block.mapped_bytes = mapped;
  if (shared) block = make_shared_file(mapped);
  void* memory = MAP_FAILED;
  const auto give_up = [&](const std::string& call, int error) {
    give_back(memory, block);
    return MemoryError(what + ": " + call + error_text(error));
  };

  if (shared && ftruncate(block.fd, static_cast<off_t>(mapped)) != 0) throw give_up("ftruncate: ", errno);
  const int flags = shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, flags, block.fd, 0);
  if (memory == MAP_FAILED) throw give_up("mmap: ", errno);
  if (node >= 0) {
    const int error = place_on_node(memory, mapped, node, strict);
    if (error != 0 && strict) {
      give_back(memory, block);
      throw Unsupported("memory cannot be placed on NUMA node " + std::to_string(node) +
                        ": mbind: " + error_text(error));
    }
  }
  if (huge_pages) madvise(memory, mapped, MADV_HUGEPAGE);  // a wish: the system's setting decides
  // Taken from the file system first: a full tmpfs is an error here, and SIGBUS at the first touch otherwise.
  if (shared) {
    const int error = posix_fallocate(block.fd, 0, static_cast<off_t>(mapped));
    if (error != 0 && error != EOPNOTSUPP && error != EINVAL) throw give_up("", error);
  }
  touch_pages(memory, mapped);
  account_pages(memory, mapped, strict ? node : -1, huge_pages);
  if (kind == MemoryKind::kPinned) mlock(memory, mapped);  // best effort: RLIMIT_MEMLOCK is often 8 MiB
  remember(memory, std::move(block));
  return memory;
}

void HostMemory::remember(void* memory, Block block) {
  const std::lock_guard lock(mutex_);
  blocks_.emplace(memory, std::move(block));
}

void HostMemory::forget(void* memory) noexcept {
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return;
    block = std::move(found->second);
    blocks_.erase(found);
  }
  give_back(memory, block);
}

void HostMemory::give_back(void* memory, const Block& block) const noexcept {
  if (memory != MAP_FAILED) munmap(memory, block.mapped_bytes);
  if (block.fd >= 0) close(block.fd);
  if (!folder_.empty() && !block.path.empty()) unlink(block.path.c_str());
}

void HostMemory::deallocate(void* memory) noexcept { forget(memory); }
void HostMemory::close_shared(void* memory) noexcept { forget(memory); }

SharedHandle HostMemory::share(void* memory) {
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) throw CallerError("share: this is not the start of an allocation of the host runtime");
    block = found->second;
  }
  if (block.path.empty()) throw Unsupported("pageable and opened memory cannot be shared");
  struct stat facts {};
  if (fstat(block.fd, &facts) != 0) throw RuntimeCallError("fstat", error_text(errno), errno, -1, "");
  const HandleHead head{facts.st_dev, facts.st_ino, block.mapped_bytes};
  return {WireWriter().value(head).rest(block.path).message()};
}

void* HostMemory::open_shared(const SharedHandle& handle) {
  if (handle.bytes.size() <= sizeof(HandleHead)) throw CallerError("open_shared: not a handle of the host runtime");
  WireReader reader(handle.bytes);
  const auto head = reader.value<HandleHead>();
  const std::string path = text_of(reader.rest());
  const std::string advice = "; set LINKGAUGE_SHARE_DIR to a tmpfs folder that every rank sees";
  const FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    throw RuntimeCallError("open", error_text(error), error, -1, "shared memory " + path + advice);
  }
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) throw RuntimeCallError("fstat", error_text(errno), errno, -1, path);
  if (facts.st_dev != head.device || facts.st_ino != head.inode) {
    throw RuntimeCallError("open", "ESTALE", ESTALE, -1,
                           path + " is another file here (ranks see different processes)" + advice);
  }
  void* memory = mmap(nullptr, head.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) throw MemoryError("mapping shared memory " + path + ": " + error_text(errno));
  touch_pages(memory, head.mapped_bytes);
  Block block;
  block.mapped_bytes = head.mapped_bytes;
  remember(memory, std::move(block));
  return memory;
}

}  // namespace linkgauge
