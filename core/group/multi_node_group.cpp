#include "group/multi_node_group.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/now.h"
#include "base/wire.h"
#include "group/agreement.h"
#include "group/region_group.h"

namespace linkgauge {
namespace {

constexpr std::int64_t kWell = 0;
constexpr std::int64_t kFailed = 1;

// Rounds in which two nodes compare their clocks: the best of each way counts, so a few undisturbed ones do.
constexpr int kClockRounds = 32;

std::vector<Bytes> unpacked(const Bytes& packed) {
  std::vector<Bytes> messages;
  for (WireReader reader(packed); !reader.done();) messages.push_back(reader.bytes());
  return messages;
}

}  // namespace

MultiNodeGroup::MultiNodeGroup(std::unique_ptr<Group> local, int rank, std::vector<int> launch_ranks,
                               std::vector<int> node_of_rank, std::shared_ptr<NodeLink> link)
    : local_(std::move(local)),
      rank_(rank),
      launch_ranks_(std::move(launch_ranks)),
      node_of_rank_(std::move(node_of_rank)),
      nodes_(*std::max_element(node_of_rank_.begin(), node_of_rank_.end()) + 1),
      link_(std::move(link)) {
  std::vector<int> seen(static_cast<std::size_t>(nodes_), 0);
  std::vector<int> leaders(static_cast<std::size_t>(nodes_), -1);
  for (std::size_t i = 0; i < node_of_rank_.size(); ++i) {
    const auto node = static_cast<std::size_t>(node_of_rank_[i]);
    if (seen[node] == 0) leaders[node] = launch_ranks_[i];
    local_rank_.push_back(seen[node]++);
  }
  if (leads()) between_.emplace(*link_, link_->newest_group, std::move(leaders), node());
}

// The largest numbers of the nodes' first ranks, once all are there. Where a node failed, all tell each other why. A
// failed node does not know what the others are at: the first two numbers of each meeting are all that it gives.
void MultiNodeGroup::largest_of_leaders(std::span<std::int64_t> numbers, const Progress& progress, Waiting waiting) {
  std::array<std::int64_t, 2> first = {kWell, numbers.empty() ? 0 : numbers.front()};
  between_->largest(first, progress, waiting);
  if (first.front() == kWell) {
    if (numbers.empty()) return;
    numbers.front() = first.back();
    if (numbers.size() > 1) between_->largest(numbers.subspan(1), progress);
    return;
  }
  told_ = true;
  std::string failure;
  for (const Bytes& words : between_->all({}, progress)) {
    if (failure.empty()) failure = text_of(words);
  }
  local_->pass_on(failure);
  throw PeerError(failure);
}

// A meeting of this node's ranks. If one of them failed, the other nodes wait for this node's next message: it tells
// them.
template <typename Meet>
auto MultiNodeGroup::meet_locally(const Meet& meet) -> decltype(meet()) {
  try {
    return meet();
  } catch (const PeerError& error) {
    begin_telling(error.what());
    finish_telling();
    throw;
  }
}

void MultiNodeGroup::begin_telling(const std::string& failure) noexcept {
  if (told_ || !leads()) return;
  told_ = true;
  between_->begin_telling(std::array<std::int64_t, 2>{kFailed, 0}, bytes_of(failure));
}

void MultiNodeGroup::finish_telling() noexcept {
  if (leads()) between_->finish_telling();
}

void MultiNodeGroup::barrier(const Progress& progress, Waiting waiting) {
  meet_locally([&] { local_->barrier(progress, waiting); });
  if (leads()) largest_of_leaders({}, progress, waiting);
  meet_locally([&] { local_->barrier(progress, waiting); });
}

void MultiNodeGroup::largest(std::span<std::int64_t> numbers, const Progress& progress) {
  meet_locally([&] { local_->largest(numbers, progress); });
  if (leads()) largest_of_leaders(numbers, progress);
  // All on this node have the node's own, or the leader larger ones.
  meet_locally([&] { local_->largest(numbers, progress); });
}

std::vector<Bytes> MultiNodeGroup::exchange(const Bytes& mine, const Progress& progress) {
  const std::vector<Bytes> local = meet_locally([&] { return local_->exchange(mine, progress); });
  WireWriter packed_nodes;
  if (leads()) {
    WireWriter packed;
    for (const Bytes& message : local) packed.bytes(message);
    largest_of_leaders({}, progress);
    for (const Bytes& node : between_->all(packed.message(), progress)) packed_nodes.bytes(node);
  }
  const std::vector<Bytes> told = meet_locally([&] { return local_->exchange(packed_nodes.message(), progress); });
  std::vector<std::vector<Bytes>> by_node;
  for (const Bytes& node : unpacked(told.front())) by_node.push_back(unpacked(node));
  std::vector<Bytes> all;
  for (std::size_t i = 0; i < node_of_rank_.size(); ++i) {
    all.push_back(by_node.at(static_cast<std::size_t>(node_of_rank_[i])).at(static_cast<std::size_t>(local_rank_[i])));
  }
  return all;
}

void MultiNodeGroup::gather(std::span<const std::byte> /*mine*/, const Take& /*take*/) {
  throw CallerError("a group on several nodes gathers node by node");
}

std::unique_ptr<Group> MultiNodeGroup::subset(const std::vector<int>& ranks) {
  check_subset(ranks, size());
  std::vector<int> launch_ranks;
  std::vector<int> old_nodes;
  std::vector<int> local_ranks;
  for (const int rank : ranks) {
    const auto index = static_cast<std::size_t>(rank);
    launch_ranks.push_back(launch_ranks_[index]);
    old_nodes.push_back(node_of_rank_[index]);
    if (node_of_rank_[index] == node()) local_ranks.push_back(local_rank_[index]);
  }
  std::unique_ptr<Group> local;
  std::string reason;
  try {
    if (!local_ranks.empty()) local = meet_locally([&] { return local_->subset(local_ranks); });
  } catch (const MemoryError& error) {
    reason = error.what();
  }
  // The ranks of the other nodes would wait for ever for those of a node that has no memory for the group.
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::int64_t newest = largest_of(reason.empty() ? link_->newest_group : kNone, {});
  if (newest == kNone) throw MemoryError(first_reason(*this, reason));
  link_->newest_group = newest + 1;
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  if (place == ranks.end()) return nullptr;

  std::vector<int> nodes = old_nodes;
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  if (nodes.size() == 1) return local;
  std::vector<int> new_nodes;
  for (const int old_node : old_nodes) {
    new_nodes.push_back(static_cast<int>(std::lower_bound(nodes.begin(), nodes.end(), old_node) - nodes.begin()));
  }
  return std::make_unique<MultiNodeGroup>(std::move(local), static_cast<int>(place - ranks.begin()),
                                          std::move(launch_ranks), std::move(new_nodes), link_);
}

std::int64_t MultiNodeGroup::align(std::int64_t lead_ns, std::int64_t offset_ns, const Progress& progress) {
  if (!clock_.compared()) compare_clocks(progress);
  meet_locally([&] { local_->barrier(progress, Waiting::kSpin); });
  std::int64_t deadline_ns = 0;  // of the first node's clock
  if (leads()) {
    const std::int64_t here_ns = now_ns() + lead_ns + meeting_ns_;
    deadline_ns = here_ns - clock_.offset_ns(here_ns);
    largest_of_leaders({&deadline_ns, 1}, progress);
  }
  const std::int64_t scheduled_ns = clock_.here_ns(from_leader(deadline_ns, progress));
  wait_until(scheduled_ns + offset_ns, progress);
  return scheduled_ns;
}

ClockOffset MultiNodeGroup::compare_clocks(const Progress& progress) {
  barrier(progress, Waiting::kSpin);  // a node that failed is known from here on
  struct Found {
    ClockOffset clock;
    std::int64_t meeting_ns;
    std::int64_t at_ns;
  } found{};
  if (leads()) {
    found.clock = offset_to_first();
    found.at_ns = now_ns();
    // A meeting of all goes as deep as the tree, and each edge takes about a round trip: twice the uncertainty.
    found.meeting_ns = 4 * found.clock.uncertainty_ns;
    largest_of_leaders({&found.meeting_ns, 1}, progress);
  }
  found = from_leader(found, progress);
  clock_.found(found.clock, found.at_ns);
  meeting_ns_ = found.meeting_ns;
  return found.clock;
}

// What this node's first rank says, on each of the node's ranks.
template <typename Value>
Value MultiNodeGroup::from_leader(const Value& value, const Progress& progress) {
  const Bytes mine = leads() ? to_bytes(value) : Bytes{};
  return from_bytes<Value>(meet_locally([&] { return local_->exchange(mine, progress); }).front());
}

// This node's clock less the other's. Every message bounds it from one side, whatever its way takes: what was sent at s
// of the sender's clock has come by r of the receiver's, so the receiver's clock is ahead by no more than r - s. The
// best bound of either direction is within one undisturbed way of the truth.
ClockOffset MultiNodeGroup::offset_to(int other_node) {
  struct Stamps {
    std::int64_t sent_ns;
    std::int64_t received_ns;  // of the round before
  };
  std::int64_t most_ns = std::numeric_limits<std::int64_t>::max();
  std::int64_t least_ns = std::numeric_limits<std::int64_t>::min();
  Stamps mine{};
  for (int round = 0; round < kClockRounds; ++round) {
    const std::int64_t before_ns = mine.sent_ns;
    mine.sent_ns = now_ns();
    const Stamps other = between_->swapped(mine, other_node);
    mine.received_ns = now_ns();
    most_ns = std::min(most_ns, mine.received_ns - other.sent_ns);
    if (round > 0) least_ns = std::max(least_ns, before_ns - other.received_ns);
  }
  // Where the clocks have moved against each other meanwhile the bounds may cross.
  const std::int64_t width_ns = most_ns > least_ns ? most_ns - least_ns : least_ns - most_ns;
  return {std::min(most_ns, least_ns) + width_ns / 2, (width_ns + 1) / 2};
}

// Each node compares itself with the one whose number lacks its highest bit, and hears from that how far it is from
// node 0, so that all are done in as many steps as the number of nodes has bits.
ClockOffset MultiNodeGroup::offset_to_first() {
  const int nodes = node_count();
  const auto parent_of = [](int one) { return one & ~static_cast<int>(std::bit_floor(static_cast<unsigned>(one))); };
  ClockOffset mine;
  for (int step = 1; step < nodes; step *= 2) {
    if (node() < step && node() + step < nodes) {
      offset_to(node() + step);
      between_->swapped(mine, node() + step);
    }
    if (node() >= step && node() < 2 * step) {
      mine = offset_to(parent_of(node()));
      const ClockOffset parent = between_->swapped(ClockOffset{}, parent_of(node()));
      mine.offset_ns += parent.offset_ns;
      mine.uncertainty_ns += parent.uncertainty_ns;
    }
  }
  return mine;
}

std::atomic<std::uint64_t>* MultiNodeGroup::flag(int source, int target, int channel) {
  if (source < 0 || source >= size() || target < 0 || target >= size()) {
    throw CallerError("no flag from rank " + std::to_string(source) + " to " + std::to_string(target) +
                      " in a group of " + std::to_string(size()));
  }
  const auto from = static_cast<std::size_t>(source);
  const auto to = static_cast<std::size_t>(target);
  if (node_of_rank_[from] != node() || node_of_rank_[to] != node()) return nullptr;
  return local_->flag(local_rank_[from], local_rank_[to], channel);
}

void MultiNodeGroup::pass_on(const std::string& failure) noexcept {
  local_->pass_on(failure);
  // The other nodes learn it with this node's next message, which no meeting of this rank will send any more.
  begin_telling(failure);
}

void MultiNodeGroup::leave() noexcept {
  finish_telling();
  local_->leave();
}

}  // namespace linkgauge
