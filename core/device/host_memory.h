// Memory of host devices: arenas of shared memory that other processes open by name, and plain pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/not_copied.h"
#include "device/device_runtime.h"

namespace linkgauge {

// Shared memory is a memfd, opened by others as /proc/<pid>/fd/<fd>: it needs no name and goes with its process. Where
// /proc does not serve, or LINKGAUGE_SHARE_DIR names a folder (a tmpfs that every rank sees: ranks in containers of
// their own), it is a file there.
class HostMemory : NotCopied {
 public:
  HostMemory();
  ~HostMemory();

  // `node`: -1 for anywhere; `strict`: exactly there, else Unsupported. Pages are there, zeroed, when it returns.
  void* allocate(MemoryKind kind, std::size_t bytes, int node, bool strict, bool huge_pages);
  void deallocate(void* memory) noexcept;
  SharedHandle share(void* memory);
  void* open_shared(const SharedHandle& handle);
  void close_shared(void* memory) noexcept;

  // What a further shared allocation may take, of the free bytes that the machine has.
  std::size_t shareable_bytes(std::size_t free_bytes) const;

 private:
  struct Block {
    std::size_t mapped_bytes = 0;
    int fd = -1;
    std::string path;  // by which others open it; empty: not shareable
  };
  Block make_shared_file(std::size_t mapped_bytes);
  void remember(void* memory, Block block);
  void forget(void* memory) noexcept;
  void give_back(void* memory, const Block& block) const noexcept;  // MAP_FAILED: what else there is of the block

  std::string folder_;  // empty: memfd
  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::uint64_t files_made_ = 0;
};

}  // namespace linkgauge
