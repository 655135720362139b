// A stand-in for a group on several nodes, for what asks how many there are.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "group/group.h"

namespace linkgauge {

// A group that says it is on two nodes, and counts how often their clocks were compared. `apart`: each of its ranks is
// on a node of its own, with which it shares no memory.
class TwoNodes final : public Group {
 public:
  explicit TwoNodes(Group& real, bool apart = false) : real_(real), apart_(apart) {}
  int compared() const { return compared_; }

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  int node() const override { return apart_ ? real_.rank() : 0; }
  int node_count() const override { return 2; }
  bool one_process() const override { return true; }
  void barrier(const Progress& progress, Waiting waiting) override { real_.barrier(progress, waiting); }
  void largest(std::span<std::int64_t> numbers, const Progress& progress) override { real_.largest(numbers, progress); }
  std::vector<std::vector<std::byte>> exchange(const std::vector<std::byte>& mine, const Progress& progress) override {
    return real_.exchange(mine, progress);
  }
  Group& on_node() override { return real_; }
  void gather(std::span<const std::byte> mine, const Take& take) override { real_.gather(mine, take); }
  std::unique_ptr<Group> subset(const std::vector<int>& ranks) override { return real_.subset(ranks); }
  std::int64_t align(std::int64_t lead_ns, std::int64_t offset_ns, const Progress& progress) override {
    return real_.align(lead_ns, offset_ns, progress);
  }
  ClockOffset compare_clocks(const Progress& /*progress*/) override {
    ++compared_;
    return {0, 1000 + compared_ % 2};
  }
  std::atomic<std::uint64_t>* flag(int source, int target, int channel) override {
    return apart_ && source != target ? nullptr : real_.flag(source, target, channel);
  }
  bool aborted() const override { return real_.aborted(); }
  std::string failure() const override { return real_.failure(); }
  void pass_on(const std::string& failure) noexcept override { real_.pass_on(failure); }
  void finish_telling() noexcept override { real_.finish_telling(); }
  void leave() noexcept override { real_.leave(); }

 private:
  Group& real_;
  bool apart_;
  int compared_ = 0;
};

}  // namespace linkgauge
