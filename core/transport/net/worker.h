// One rank's end of a library of network cards (UCX, libfabric): its connections to other ranks' ends, memory that
// these reach, and the messages that are under way. What each library does its own way is virtual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/not_copied.h"
#include "base/wire.h"
#include "group/group.h"
#include "transport/idling.h"
#include "transport/transport.h"

namespace linkgauge::nic {

// A connection as its library names it: an endpoint, a place in a table of addresses.
using Peer = std::uint64_t;

// Operations of one link that are under way, and what the first that failed said (a library's own code, 0 is none). The
// library tells it of their ends, so it stays as long as the worker.
struct Tally {
  std::int64_t under_way = 0;
  int failed = 0;
  void (*free_request)(void*) = nullptr;  // where the library's requests are given back
};

// What memory is to a library: where it lies, and whose device's it is.
enum class MemoryType : std::uint8_t { kHost, kCuda, kCudaManaged, kRocm, kRocmManaged };
struct Region {
  void* data = nullptr;
  std::size_t bytes = 0;
  MemoryType type = MemoryType::kHost;
  int device = -1;
};
// Throws Unsupported for memory of a runtime that the libraries do not know.
MemoryType memory_type_of(const DeviceRuntime& runtime, MemoryKind kind);

// Memory of this rank that the library has registered. Goes before its worker.
class Memory : NotCopied {
 public:
  virtual ~Memory() = default;
  // What another rank needs to reach it, and how that names its first byte.
  virtual std::vector<std::byte> key() const = 0;
  virtual std::uint64_t address() const = 0;
};

// Another rank's registered memory, through a connection.
class Remote : NotCopied {
 public:
  explicit Remote(std::uint64_t address) : address_(address) {}
  virtual ~Remote() = default;
  std::uint64_t at(std::size_t offset) const { return address_ + offset; }

 private:
  std::uint64_t address_;
};

class Worker;

// One flow's use of a connection. Each call begins an operation, which wait() ends; all throw RuntimeCallError where
// the library refuses, and PeerError where a rank of the group has given up.
class Link : NotCopied {
 public:
  Link(Worker& worker, const Group& group);
  // What is under way then makes the worker unfit for a further case.
  virtual ~Link();

  // A message of its own tag; `alone`: it is waited for at once, not queued with others.
  virtual void send(const void* data, std::size_t bytes, std::uint64_t tag, bool alone) = 0;
  virtual void receive(void* data, std::size_t bytes, std::uint64_t tag) = 0;
  // `own`: the registered memory in which `data` lies.
  virtual void put(const void* data, std::size_t bytes, const Memory* own, const Remote& into, std::size_t offset) = 0;
  virtual void get(void* data, std::size_t bytes, const Memory* own, const Remote& from, std::size_t offset) = 0;
  // What is put later is seen later than what was put before.
  virtual void order() = 0;
  // Over when all puts and gets of the connection are, there too.
  virtual void flush() = 0;

  bool idle() const { return tally_->under_way == 0; }
  void wait(const char* what);

 protected:
  Tally* tally() const { return tally_; }
  const Group& group() const { return *group_; }

 private:
  Worker* worker_;
  const Group* group_;
  Tally* tally_;
};

class Worker : NotCopied {
 public:
  virtual ~Worker() = default;

  // "ucx", "ofi": by which its facts are stored with a case.
  virtual const char* name() const = 0;
  virtual std::string version() const = 0;
  // Drives what is under way; how much of it moved.
  virtual unsigned progress() = 0;
  virtual std::unique_ptr<Memory> registered(const Region& region) = 0;
  virtual std::unique_ptr<Remote> reach(Peer peer, std::uint64_t address, const Bytes& key) = 0;
  // `own`: the flow's memory at this end where it is registered, else nullptr.
  virtual std::unique_ptr<Link> link(const Group& group, Peer peer, const Region& region, const Memory* own) = 0;
  // Whether messages need their memory registered, whoever reaches into it.
  virtual bool registers(const Region& region) const = 0;
  // The transports or providers, and devices, that a connection uses ("tcp/eth0", ...); "" where the library does not
  // tell.
  virtual std::string ways(Peer peer) const = 0;
  // Throws RuntimeCallError in the library's own words.
  [[noreturn]] virtual void fail(int code, const char* call) const = 0;

  // Collective over `group`: a connection to the worker of each of `peers` (ranks of the group), by rank, and a number
  // that no earlier operation of any of these ranks has had. Throws Unsupported on every rank where one has no way.
  struct Meeting {
    std::map<int, Peer> peers;
    std::uint32_t turn = 0;
  };
  Meeting meet(Group& group, const std::vector<int>& peers);

  // Where operations of a link are counted; given back when none is under way.
  Tally* tally();
  void give_back(Tally* tally);

  // Keeps what peers may write until this operation's ranks have met for the last time: to the next meeting.
  void retire(std::shared_ptr<void> memory) { retired_.push_back(std::move(memory)); }

  // Drives the library until over(). Throws PeerError when a rank of `group` has given up meanwhile.
  template <typename Over>
  void drive_until(const Group& group, const Over& over) {
    idling_.drive(
        group, [this] { return progress() != 0; }, over);
  }
  // One turn of a wait in which nothing moved.
  void idle(const Group& group) { idling_.turn(group); }

  // Nothing of this worker is to be used for a further case.
  void mark_broken() { broken_ = true; }
  // The same where operations are under way whose memory goes now: the library is to touch none of it from here on.
  virtual void abandon() { mark_broken(); }
  bool broken() const { return broken_; }

  // The case's settings under which it was made.
  const std::string& settings() const { return settings_; }
  void made_under(std::string settings) { settings_ = std::move(settings); }

 protected:
  // A connection to the worker of that address; why there is none, "" where there is.
  virtual std::string connect(const std::string& address, Peer* peer) = 0;
  void set_address(std::string address) { address_ = std::move(address); }
  void forget_retired() { retired_.clear(); }

 private:
  std::string address_;  // bytes that only the library reads
  std::string settings_;
  std::map<std::string, Peer> known_;  // by the peer's address
  std::uint32_t turn_ = 0;
  std::vector<std::shared_ptr<void>> retired_;
  std::deque<Tally> tallies_;
  std::vector<Tally*> free_tallies_;
  Idling idling_;
  bool broken_ = false;
};

}  // namespace linkgauge::nic
