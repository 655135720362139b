// A group that spans nodes: ranks of one node meet in their region, and the first rank of each node meets the others by
// messages. Each such meeting begins with the largest of two numbers, which is all of a barrier, a vote and a deadline;
// a node that failed says so there, whatever meeting the others are at.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/clock_line.h"
#include "group/group.h"
#include "group/node_link.h"
#include "group/node_meetings.h"

namespace linkgauge {

class MultiNodeGroup final : public Group {
 public:
  // `launch_ranks[i]` and `node_of_rank[i]`: the launch's rank and node index (0 ascending) of this group's rank i.
  // `local` holds this node's ranks of the group, in their order. Its number is the newest that `link` knows.
  MultiNodeGroup(std::unique_ptr<Group> local, int rank, std::vector<int> launch_ranks, std::vector<int> node_of_rank,
                 std::shared_ptr<NodeLink> link);
  ~MultiNodeGroup() override { finish_telling(); }
  MultiNodeGroup(const MultiNodeGroup&) = delete;
  MultiNodeGroup& operator=(const MultiNodeGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(launch_ranks_.size()); }
  int node() const override { return node_of_rank_[static_cast<std::size_t>(rank_)]; }
  int node_count() const override { return nodes_; }
  bool one_process() const override { return false; }

  void barrier(const Progress& progress, Waiting waiting) override;
  void largest(std::span<std::int64_t> numbers, const Progress& progress) override;
  std::vector<std::vector<std::byte>> exchange(const std::vector<std::byte>& mine, const Progress& progress) override;
  Group& on_node() override { return *local_; }
  void gather(std::span<const std::byte> mine, const Take& take) override;
  std::unique_ptr<Group> subset(const std::vector<int>& ranks) override;
  std::int64_t align(std::int64_t lead_ns, std::int64_t offset_ns, const Progress& progress) override;
  ClockOffset compare_clocks(const Progress& progress) override;
  std::atomic<std::uint64_t>* flag(int source, int target, int channel) override;
  bool aborted() const override { return local_->aborted(); }
  std::string failure() const override { return local_->failure(); }
  void pass_on(const std::string& failure) noexcept override;
  void finish_telling() noexcept override;
  void leave() noexcept override;

 private:
  bool leads() const { return local_->rank() == 0; }
  void largest_of_leaders(std::span<std::int64_t> numbers, const Progress& progress, Waiting waiting = Waiting::kSpin);
  template <typename Meet>
  auto meet_locally(const Meet& meet) -> decltype(meet());
  void begin_telling(const std::string& failure) noexcept;
  template <typename Value>
  Value from_leader(const Value& value, const Progress& progress);
  ClockOffset offset_to(int other_node);
  ClockOffset offset_to_first();

  std::unique_ptr<Group> local_;
  int rank_;
  std::vector<int> launch_ranks_;
  std::vector<int> node_of_rank_;
  std::vector<int> local_rank_;  // of each rank within its node
  int nodes_;
  std::shared_ptr<NodeLink> link_;
  std::optional<NodeMeetings> between_;  // of the first rank of a node
  ClockLine clock_;
  std::int64_t meeting_ns_ = 0;  // what a meeting of all nodes takes, roughly
  bool told_ = false;            // the other nodes know of the failure: no further meeting will match
};

}  // namespace linkgauge
