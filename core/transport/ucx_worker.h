// One rank's end of UCX: its worker, its connections to other ranks' workers, and the messages that are under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "group/group.h"
#include "transport/idling.h"
#include "transport/transport.h"
#include "transport/ucx_api.h"

namespace linkgauge::ucx {

// Requests of one channel that are under way, and what the first that failed said. UCX calls back into it, so it stays
// as long as the worker.
struct Tally {
  std::int64_t under_way = 0;
  Status failed = kOk;
  void (*free_request)(void*) = nullptr;
};

class RankWorker {
 public:
  // Makes a context and a worker, as the environment's UCX_ variables say. Throws RuntimeCallError.
  explicit RankWorker(const Library& library);
  RankWorker(const RankWorker&) = delete;
  RankWorker& operator=(const RankWorker&) = delete;
  // Ends what is under way without asking any peer, which may be gone.
  ~RankWorker();

  const Library& library() const { return *library_; }
  const Table& calls() const { return library_->calls(); }
  Worker get() const { return worker_; }
  Context context() const { return context_; }
  unsigned progress() { return calls().ucp_worker_progress(worker_); }
  bool knows_memory(int type) const { return (memory_types_ >> type & 1) != 0; }

  // Collective over `group`: a connection to the worker of each of `peers` (ranks of the group), by rank, and a number
  // that no earlier operation of any of these ranks has had.
  struct Meeting {
    std::map<int, Endpoint> endpoints;
    std::uint32_t turn = 0;
  };
  Meeting meet(Group& group, const std::vector<int>& peers);

  // Where requests of a channel are counted; given back when none is under way.
  Tally* tally();
  void give_back(Tally* tally);

  // Keeps what peers may write until this operation's ranks have met for the last time: to the next meeting.
  void retire(std::shared_ptr<void> memory) { retired_.push_back(std::move(memory)); }

  // What a send, put, get or flush that `tally` counts is given; a receive's is receive_for().
  static RequestParameters request_for(Tally* tally);
  static RequestParameters receive_for(Tally* tally);
  // Counts a request where it goes on, throws RuntimeCallError where `call` failed.
  void count(StatusPointer request, Tally* tally, const char* call) const {
    if (request == nullptr) return;
    if (is_error(request)) [[unlikely]] {
      library_->fail(status_of(request), call);
    }
    ++tally->under_way;
  }
  // Drives the library until over(). Throws PeerError when a rank of `group` has given up meanwhile.
  template <typename Over>
  void drive_until(const Group& group, const Over& over);
  void wait(const Group& group, const Tally& tally, const char* call);

  // The transports and devices that a connection's lanes use ("tcp/eth0", ...), as UCX gives them; "" where this UCX
  // does not tell.
  std::string ways(Endpoint endpoint) const;

  // Nothing of this worker is to be used for a further case.
  void mark_broken() { broken_ = true; }
  bool broken() const { return broken_; }

 private:
  void release() noexcept;

  const Library* library_;
  Context context_ = nullptr;
  Worker worker_ = nullptr;
  std::uint64_t memory_types_ = 0;
  std::string address_;                        // bytes that only UCX reads
  std::map<std::string, Endpoint> endpoints_;  // by the peer's address
  std::uint32_t turn_ = 0;
  std::vector<std::shared_ptr<void>> retired_;
  std::deque<Tally> tallies_;
  std::vector<Tally*> free_tallies_;
  Idling idling_;
  bool broken_ = false;
};

template <typename Over>
void RankWorker::drive_until(const Group& group, const Over& over) {
  while (!over()) {
    if (progress() == 0) {
      idling_.turn(group, "a message of UCX");
    } else {
      idling_.over();
    }
  }
  idling_.over();
}

// This rank's worker, made where there is none or it broke. Kept in `context.lasting`, or in `own` where the context
// keeps nothing. Throws Unsupported where UCX is not to be had.
std::shared_ptr<RankWorker> worker_of(const RankContext& context, std::shared_ptr<void>& own);

}  // namespace linkgauge::ucx
