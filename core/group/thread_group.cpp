// Groups of threads of one process: regions are plain memory, handed over by pointer.
#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/waiting.h"
#include "group/group.h"
#include "group/region_group.h"

namespace linkgauge {
namespace {

class ThreadRegion final : public Region {
 public:
  explicit ThreadRegion(std::size_t bytes)
      : bytes_(bytes), base_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (base_ == MAP_FAILED) throw MemoryError("no memory for a group of threads");
  }
  ~ThreadRegion() override { munmap(base_, bytes_); }
  std::byte* base() const override { return static_cast<std::byte*>(base_); }

 private:
  std::size_t bytes_;
  void* base_;
};

std::shared_ptr<Region> make_region(int size) {
  auto region = std::make_shared<ThreadRegion>(RegionGroup::region_bytes(size));
  RegionGroup::set_up(region->base());
  return region;
}

class ThreadRegionMaker final : public RegionMaker {
 public:
  bool one_process() const override { return true; }

  std::shared_ptr<Region> make(RegionGroup& parent, bool member, bool first, int member_count) override {
    std::shared_ptr<Region> region;
    const std::shared_ptr<Region>* const made = told_by_first(parent, first, [&] {
      region = make_region(member_count);
      return &region;
    });
    if (member && !first) region = *made;
    parent.barrier({}, Waiting::kSpin);  // the first keeps its pointer where it is until all have read it
    return region;
  }
};

}  // namespace

std::vector<std::shared_ptr<Group>> make_thread_groups(int size) {
  if (size < 1) throw CallerError("a group of " + std::to_string(size) + " threads: expected 1 or more");
  if (static_cast<unsigned>(size) > kCrowdedRanksPerCore * std::max(1U, std::thread::hardware_concurrency())) {
    crowded.store(true, std::memory_order_relaxed);
  }
  const std::shared_ptr<Region> region = make_region(size);
  const auto maker = std::make_shared<ThreadRegionMaker>();
  std::vector<std::shared_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank) groups.push_back(std::make_shared<RegionGroup>(region, maker, rank, size));
  return groups;
}

}  // namespace linkgauge
