// The ranks of a measurement: who takes part, how they meet and what they tell each other. Knows nothing of devices.
//
// Every call is collective over the group unless it says otherwise. A wait spins briefly, then yields, and calls
// `progress` every so many spins, so that a library that needs the target's help (one-sided MPI) is not starved. When a
// rank has left or failed (abort_with), every wait throws PeerError.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"

namespace linkgauge {

using Progress = std::function<void()>;  // empty: nothing to progress
using Take = std::function<void(std::span<const std::byte>)>;

// How a barrier waits: ranks that are measured spin; ranks with nothing to do sleep, so that they take no core from
// those that have.
enum class Waiting : std::uint8_t { kSpin, kSleep };

class NodeLink;

// How far this node's clock is ahead of that of its group's first node: by offset_ns, give or take uncertainty_ns.
struct ClockOffset {
  std::int64_t offset_ns = 0;
  std::int64_t uncertainty_ns = 0;
};

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int node() const = 0;          // index of this rank's node among the group's nodes
  virtual int node_count() const = 0;    // 1: a common clock
  virtual bool one_process() const = 0;  // ranks are threads of one process: a pointer is a handle

  virtual void barrier(const Progress& progress, Waiting waiting = Waiting::kSpin) = 0;
  // Each number becomes the largest of those that the ranks, all of which give as many, have in its place. Time and
  // memory of a rank do not grow with the number of ranks.
  virtual void largest(std::span<std::int64_t> numbers, const Progress& progress) = 0;
  std::int64_t largest_of(std::int64_t mine, const Progress& progress) {
    largest({&mine, 1}, progress);
    return mine;
  }
  // True when every rank says true.
  bool agree(bool mine, const Progress& progress) { return largest_of(mine ? 0 : 1, progress) == 0; }
  // Each rank's bytes, by rank. Sizes may differ. Across nodes every node gets all ranks' bytes: what may be asked with
  // agree or largest costs the same however many ranks there are.
  virtual std::vector<std::vector<std::byte>> exchange(const std::vector<std::byte>& mine,
                                                       const Progress& progress) = 0;

  // The ranks of this node as a group, which lives as long as this one. Not collective.
  virtual Group& on_node() = 0;
  // Every rank's bytes to the first rank alone, one rank after the other: `take` is called there, piece after piece of
  // at most kGatherPieceBytes, and what is on its way is bounded by the shared memory. What it throws is thrown once
  // all have been taken. Of the ranks of one node: across nodes throws CallerError.
  static constexpr std::size_t kGatherPieceBytes = 1 << 14;
  virtual void gather(std::span<const std::byte> mine, const Take& take) = 0;

  // The ranks of `ranks` (distinct, of this group) as a group of their own, in that order; ranks outside get nullptr.
  // Collective over this group.
  virtual std::unique_ptr<Group> subset(const std::vector<int>& ranks) = 0;

  // Start alignment: every rank returns at about the same time of its node's clock, having spun to a deadline that all
  // agreed on. Returns that deadline, scheduled_ns. `lead_ns`: how far ahead of the last arrival it is set;
  // `offset_ns`: added for this rank's own spin (skewed arrivals; scheduled_ns stays the common one). Across nodes: one
  // deadline, which each node reckons to its own clock; its scheduled_ns is of that clock, compared at the
  // first call, or by compare_clocks, whichever was last.
  virtual std::int64_t align(std::int64_t lead_ns, std::int64_t offset_ns, const Progress& progress) = 0;

  // Compares the nodes' clocks by messages and keeps what was found for align. Ranks of one node share a clock: zeros,
  // at once. Across nodes it takes some tens of exchanges between two nodes for each doubling of their number.
  virtual ClockOffset compare_clocks(const Progress& /*progress*/) { return {}; }

  // A counter in memory shared by the ranks of one node, for the ordered pair (source, target) and a channel below
  // kFlagChannels: the hand-over signal of one-sided transports. Not collective, never blocks; nullptr across nodes.
  static constexpr int kFlagChannels = 4;
  virtual std::atomic<std::uint64_t>* flag(int source, int target, int channel) = 0;

  // True once some rank called abort_with; long waits outside of the group poll it. Not collective.
  virtual bool aborted() const = 0;
  // Which rank failed and why, as every wait then throws it; empty while !aborted(). Not collective.
  virtual std::string failure() const = 0;
  // What long waits outside of the group call where they look at aborted().
  void throw_if_aborted() const {
    if (aborted()) throw PeerError(failure());
  }
  // This rank cannot go on: every other rank's waits throw PeerError with this reason. Not collective. Returns once all
  // nodes know it, which the ranks of each learn at their next meeting of this group.
  void abort_with(const std::string& reason) noexcept;
  // The same with what this rank caught: another rank's failure is passed on.
  void abort_with(const std::exception& error) noexcept;
  // The same without waiting for the other nodes, whose ranks may wait for this one in another group: a rank that fails
  // in several begins in all of them, and then leaves each.
  void begin_abort(const std::string& reason) noexcept;
  void begin_abort(const std::exception& error) noexcept;
  // begin_abort with another rank's failure, as that rank's PeerError says it: it keeps that rank's number. Ranks that
  // learned of it by looking at aborted() call it too, since the first of a node tells the other nodes.
  virtual void pass_on(const std::string& failure) noexcept = 0;
  // Returns once all nodes know of a failure that this rank began to tell.
  virtual void finish_telling() noexcept {}
  // The last meeting of a group that failed: waits until all nodes know it and every rank of this node has come here,
  // whatever has happened, so that memory which others may still be using can be given back. Later calls return at
  // once.
  virtual void leave() noexcept = 0;
  // Where memory is given back that other ranks reach: a barrier, and leave() where a rank has failed.
  void part(const Progress& progress) noexcept;
};

// A group of `size` threads of this process; element i is for the thread that plays rank i. They share one state.
std::vector<std::shared_ptr<Group>> make_thread_groups(int size);

// A group of processes. `node_of_rank[i]` is the index of rank i's node; ranks of one node meet in shared memory at
// `segment_path`, a file in the launch's private folder that the node's first rank makes and removes once all have
// mapped it. With several nodes the node's index is appended to it, so that a folder that nodes share will do.
//
// A peer that was killed is noticed by the parent process, not by the group: waits then go on until this process is
// ended, and never block a signal.
struct ProcessGroupOptions {
  int rank = 0;
  std::vector<int> node_of_rank;
  std::string segment_path;
  std::shared_ptr<NodeLink> link;  // of all of them, in this order; needed when there is more than one node
};
std::shared_ptr<Group> make_process_group(const ProcessGroupOptions& options);

// Returns when this node's clock has come to `deadline_ns`.
void wait_until(std::int64_t deadline_ns, const Progress& progress);

// One turn of a waiting loop: spin for a while, then yield. A pure spin barrier with more ranks than cores costs
// milliseconds.
class Waiter {
 public:
  static constexpr int kSpinsPerProgress = 64;
  explicit Waiter(const Progress& progress);
  void pause();

 private:
  const Progress& progress_;
  const int most_;  // before it yields
  int spins_ = 0;
};

}  // namespace linkgauge
