// Meetings of the first ranks of a group's nodes. In each round a node sends to the one `reach` behind it and hears
// from the one `reach` before it, and `reach` doubles: all have heard of all after as many rounds as their number has
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/wire.h"
#include "group/group.h"
#include "group/node_link.h"

namespace linkgauge {

class NodeMeetings {
 public:
  // `leaders[i]`: the launch's rank that is the first of node i. `group`: the number of the group (NodeLink).
  NodeMeetings(NodeLink& link, std::int64_t group, std::vector<int> leaders, int node);
  ~NodeMeetings();
  NodeMeetings(const NodeMeetings&) = delete;
  NodeMeetings& operator=(const NodeMeetings&) = delete;

  // The largest of all nodes' numbers, place by place: as many bytes a round, however many nodes there are.
  void largest(std::span<std::int64_t> numbers, const Progress& progress, Waiting waiting = Waiting::kSpin);
  // Each node's bytes, by node.
  std::vector<Bytes> all(std::span<const std::byte> mine, const Progress& progress);
  // As largest() and then all() of `words`, but begins without waiting, after which there are no other meetings. Waits
  // for other nodes go on with it, in this group or another of the link.
  void begin_telling(std::span<const std::int64_t> numbers, std::span<const std::byte> words);
  // Returns when all nodes have been told, or cannot be.
  void finish_telling();
  // This value for that of another node, which swaps with this one meanwhile.
  template <typename Value>
  Value swapped(const Value& mine, int other_node) {
    return from_bytes<Value>(swap(to_bytes(mine), other_node));
  }

 private:
  // What a node has heard so far: the largest numbers, or messages, its own first, then the one's before it, and so on.
  struct Rounds {
    Bytes heard{};
    std::vector<std::size_t> sizes{};  // of each node's message; empty: numbers
    int reach = 1;
    bool under_way = false;
  };
  // What of a failure is being told: each is a meeting, and begins when the one before is over.
  enum class Telling : std::uint8_t { kNothing, kNumbers, kSizes, kWords, kLast };
  // The beginning of a message and its size.
  Rounds framed(std::span<const std::byte> mine) const;
  std::vector<std::size_t> sizes_of(const Bytes& frames) const;
  void tell_on();
  void go_on_telling();
  std::span<const std::byte> swap(std::span<const std::byte> mine, int other_node);
  Bytes meet(Rounds rounds, const Progress& progress, Waiting waiting);
  bool advance();
  std::size_t bytes_of(int node, int count) const;
  int before(int node, int distance) const;

  NodeLink& link_;
  std::vector<int> leaders_;
  int node_;
  std::unique_ptr<NodeTransfer> transfer_;
  std::optional<Rounds> rounds_;  // of the meeting that is under way
  Telling next_ = Telling::kNothing;
  std::vector<std::int64_t> numbers_;  // that are told, and the words
  Bytes words_;
};

}  // namespace linkgauge
