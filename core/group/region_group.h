// A group whose ranks meet in one region of shared memory: threads of one process, or processes of one node.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/not_copied.h"
#include "base/wire.h"
#include "group/group.h"

namespace linkgauge {

// Memory that the ranks of one group share; given back when the last of them lets go.
class Region : NotCopied {
 public:
  virtual ~Region() = default;
  virtual std::byte* base() const = 0;
};

class RegionGroup;

// Makes the regions of subsets. How one is made and handed to its members is all that threads and processes differ in.
class RegionMaker {
 public:
  virtual ~RegionMaker() = default;
  // Collective over `parent`. The region of `member_count` ranks, set up by the member that is `first`; nullptr for
  // those that are no members.
  virtual std::shared_ptr<Region> make(RegionGroup& parent, bool member, bool first, int member_count) = 0;
  virtual bool one_process() const = 0;
};

class RegionGroup final : public Group {
 public:
  // `region` is fresh, hence zero, set up by one of its ranks, and has room for region_bytes(size).
  RegionGroup(std::shared_ptr<Region> region, std::shared_ptr<RegionMaker> maker, int rank, int size);

  static std::size_t region_bytes(int size);
  static void set_up(std::byte* base);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int node() const override { return 0; }
  int node_count() const override { return 1; }
  bool one_process() const override { return maker_->one_process(); }

  void barrier(const Progress& progress, Waiting waiting) override;
  void largest(std::span<std::int64_t> numbers, const Progress& progress) override;
  std::vector<std::vector<std::byte>> exchange(const std::vector<std::byte>& mine, const Progress& progress) override;
  Group& on_node() override { return *this; }
  void gather(std::span<const std::byte> mine, const Take& take) override;
  std::unique_ptr<Group> subset(const std::vector<int>& ranks) override;
  std::int64_t align(std::int64_t lead_ns, std::int64_t offset_ns, const Progress& progress) override;
  std::atomic<std::uint64_t>* flag(int source, int target, int channel) override;
  bool aborted() const override;
  std::string failure() const override;
  void pass_on(const std::string& failure) noexcept override;
  void leave() noexcept override;

 private:
  struct Header;
  struct Maxima;
  struct Slot;
  Header& header() const;
  Slot& slot(int rank, std::uint64_t round) const;
  template <typename LastOne>
  void meet(const Progress& progress, Waiting waiting, const LastOne& last_one);

  std::shared_ptr<Region> region_;
  std::shared_ptr<RegionMaker> maker_;
  int rank_;
  int size_;
  std::uint64_t maxima_ = 0;  // rounds of largest(): which of the numbers' places are in use
  bool parted_ = false;
  std::uint64_t rounds_ = 0;  // rounds of exchange(): which of a rank's two slots is in use
};

// Collective over `parent`: on every rank the value that `make` gave the one that is `first`. Where it threw, a
// MemoryError with its words on all: none waits for a rank that has left.
template <typename Make>
auto told_by_first(RegionGroup& parent, bool first, const Make& make) -> decltype(make()) {
  WireWriter mine;
  if (first) {
    try {
      const auto made = make();
      mine.value(true).value(made);
    } catch (const std::exception& error) {
      mine.value(false).rest(error.what());
    }
  }
  for (const Bytes& told : parent.exchange(mine.message(), {})) {
    if (told.empty()) continue;
    WireReader reader(told);
    if (reader.value<bool>()) return reader.value<decltype(make())>();
    throw MemoryError(text_of(reader.rest()));
  }
  throw CallerError("a region has no first rank");
}

// `ranks` must be distinct ranks of a group of `size`, in any order; throws CallerError.
void check_subset(const std::vector<int>& ranks, int size);

}  // namespace linkgauge
