// Messages between ranks of a launch that share no memory, over whatever connected its processes (MPI).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace linkgauge {

class NodeMeetings;

// One message to a rank and one from a rank at the same time, then the next two. It copies what is sent and keeps what
// comes: if its owner gives up on a message, no memory goes into which the message may still be written.
class NodeTransfer {
 public:
  virtual ~NodeTransfer() = default;
  // `expected`: as many bytes as the other rank sends. Only once done() has said true of the last two.
  virtual void begin(int to, std::span<const std::byte> sent, int from, std::size_t expected) = 0;
  virtual bool done() = 0;  // also lets the library go on with both
  virtual std::span<const std::byte> received() const = 0;
};

// One a process, in the hands of one thread.
class NodeLink {
 public:
  static constexpr int kTags = 32'768;  // MPI promises so many

  virtual ~NodeLink() = default;
  // Messages of one tag come in order from each rank. `tag`: below kTags.
  virtual std::unique_ptr<NodeTransfer> transfer(int tag) = 0;

  // The newest group that this process knows of. A group's number is above those of all groups that two of its ranks
  // are in, so that no message of one is taken for the other's.
  std::int64_t newest_group = 0;
  // Meetings that are telling the other nodes of a failure. Every wait of this rank for another node goes on with them:
  // those nodes may be at another group's meeting, which this rank has to end as well.
  std::vector<NodeMeetings*> telling;
};

}  // namespace linkgauge
