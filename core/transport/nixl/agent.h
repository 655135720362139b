// One rank's end of NIXL: its agent, what it knows of other ranks' agents, and what these have notified it of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/not_copied.h"
#include "group/group.h"
#include "transport/idling.h"
#include "transport/nixl/api.h"
#include "transport/transport.h"

namespace linkgauge::nixl {

inline constexpr const char* kBackend = "UCX";

// What an end of a flow tells the other: how many messages of it are where they belong, are ready or read.
struct Notice {
  std::uint32_t turn = 0;   // of the connection
  std::uint32_t place = 0;  // of the flow among those of the rank that is told
  std::uint64_t messages = 0;
};

class RankAgent : NotCopied {
 public:
  // An agent with a backend, without threads of its own: whoever waits drives it. Throws RuntimeCallError.
  explicit RankAgent(const Library& library);
  ~RankAgent();

  const Library& library() const { return *library_; }
  const Table& calls() const { return library_->calls(); }
  Agent get() const { return agent_; }
  Options options() const { return options_; }
  const std::string& name() const { return name_; }

  // What other agents need to reach this one and the memory that it has registered. Only NIXL reads it.
  std::string metadata() const;
  // Takes in another agent's metadata. Throws RuntimeCallError.
  void know(const std::string& agent, const std::string& metadata);

  // What the flows of a connection have been told, by their places; an operation has several. Of turns that have not
  // begun or are over nothing is heard.
  using Heard = std::vector<std::uint64_t>;
  const Heard& begin(std::uint32_t turn, std::size_t flows);
  void end(std::uint32_t turn) { heard_.erase(turn); }
  std::uint32_t last_turn() const { return last_turn_; }
  void notify(const Group& group, const std::string& agent, const Notice& notice) const;

  // Moves what is under way and takes in notices; whether there were any. Not from two threads at once.
  bool progress();
  // Drives the library until over(). Throws PeerError when a rank of `group` has given up meanwhile.
  template <typename Over>
  void drive_until(const Group& group, const Over& over) {
    idling_.drive(
        group, [this] { return progress(); }, over);
  }

  // Throws RuntimeCallError where a transfer failed. NIXL notices that a peer is gone before any launcher tells of it:
  // where that may be the cause whoever knows it gets a second, and PeerError is thrown where a rank of `group` gave
  // up.
  void check_transfer(const Group& group, Status status, const char* call) const {
    if (status != kOk) [[unlikely]] {
      fail_transfer(group, status, call);
    }
  }

  // Nothing of this agent is to be used for a further case.
  void mark_broken() { broken_ = true; }
  bool broken() const { return broken_; }

 private:
  void take_in(std::string_view notice);
  [[noreturn]] void fail_transfer(const Group& group, Status status, const char* call) const;
  void release() noexcept;

  const Library* library_;
  std::string name_;
  Agent agent_ = nullptr;
  Backend backend_ = nullptr;
  Options options_ = nullptr;
  Notifications arrived_ = nullptr;
  std::map<std::string, std::string> known_;  // metadata of other agents, by their names
  std::uint32_t last_turn_ = 0;
  std::map<std::uint32_t, Heard> heard_;  // by turn
  Idling idling_;
  bool broken_ = false;
};

// This rank's agent, made where there is none or it broke. Kept in `context.lasting`, or in `own` where the context
// keeps nothing. Throws Unsupported where NIXL is not to be had.
std::shared_ptr<RankAgent> agent_of(const RankContext& context, std::shared_ptr<void>& own);

}  // namespace linkgauge::nixl
