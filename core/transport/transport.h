// How bytes move. One folder a mechanism, each with the same few functions.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/case_spec.h"
#include "base/not_copied.h"
#include "device/device_runtime.h"
#include "group/group.h"

namespace linkgauge {

class MpiLibrary;  // mpi/library.h

// Where libraries that are opened at run time lie. Empty: the dynamic loader's own search.
struct LibraryPlaces {
  std::string ccl;                   // NCCL's or RCCL's file
  std::vector<std::string> folders;  // searched before the loader's own places
};

// What was decided at run time for a case, by name: a kernel, its grid, a way, a chunk. Stored with the case.
using Chosen = std::map<std::string, std::string>;

// What transports keep from case to case, by name. Goes before the runtime.
using Kept = std::map<std::string, std::shared_ptr<void>>;

// What a rank has for the whole launch.
struct LaunchResources {
  DeviceRuntime* runtime = nullptr;
  MpiLibrary* mpi = nullptr;  // nullptr in threads mode
  LibraryPlaces libraries;
  Kept* lasting = nullptr;  // for this rank whatever the case's ranks (a worker with its connections)
};

// Who takes part in an operation. A collective of some of an application's ranks has another of these.
struct OperationRanks {
  Group* group = nullptr;
  std::uint64_t communicator = 0;   // MPI handle of these ranks, as bits; 0 without MPI
  std::vector<int> device_of_rank;  // by rank of `group`
  Kept* keep = nullptr;             // for this set of ranks (a communicator)
  bool one_stream = false;          // operations of a communicator share a stream, as a program's process group has one

  int rank() const { return group->rank(); }
  int size() const { return group->size(); }
  int device_of(int other) const { return device_of_rank[static_cast<std::size_t>(other)]; }
  int device() const { return device_of(rank()); }
  std::shared_ptr<void>& kept(const std::string& thing) const { return (*keep)[thing]; }
};

// What the case asks of those who prepare an operation, and what it is told of that.
struct CaseServices {
  std::string settings;                 // of a library that is told them when it makes a context
  Chosen* chosen = nullptr;             // nullptr: nobody asks
  std::function<void(bool)> compiling;  // told when what may take tens of seconds begins, and ends; empty: nobody asks
  // Where the job is in several parts: runs what it is given on one part after the other. Collective over all of them.
  std::function<void(const std::function<void()>&)> part_by_part;

  // Of several choices under one name all are told.
  void choose(const std::string& name, const std::string& value) const {
    if (chosen == nullptr) return;
    std::string& known = (*chosen)[name];
    if (known.find(value) == std::string::npos) known += (known.empty() ? "" : ", ") + value;
  }
  // For what a part's ranks try out together on links that other parts share; collective over the job.
  void while_others_wait(const std::function<void()>& body) const {
    if (part_by_part) {
      part_by_part(body);
    } else {
      body();
    }
  }
  void tell_compiling(bool begins) const {
    if (compiling) compiling(begins);
  }
};

// What an operation is built from on this rank. Everything outlives the operation.
struct RankContext : LaunchResources, OperationRanks, CaseServices {};

// Why kernels of this rank's device cannot reach the case's memory, or "".
std::string why_not_reached(const RankContext& context, const Places& places);

// How far a completion reaches. At the source, kLocal: the buffer may be reused; kRemote: the target has all bytes and
// the source knows it (the target takes part by complete(kRemote) on its end). At the target both mean that all bytes
// have arrived.
enum class Completion : std::uint8_t { kLocal, kRemote };

// A stream that operations are queued on, and its device.
struct DeviceQueue {
  StreamHandle stream;
  int device;
  bool timed = true;  // false: what moves in it is beside what is measured
};

// One directed flow of messages from a buffer of rank `source` to a buffer of rank `target`. Both ends call in the same
// order with the same offsets and sizes. Where one rank is both ends it calls put, then get, then complete once.
class Channel : NotCopied {
 public:
  virtual ~Channel() = default;
  // At the source: queue one message. Returns at once where the mechanism can.
  virtual void put(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) = 0;
  // At the target: queue the matching arrival.
  virtual void get(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) = 0;
  // Begin what put and get have queued, of all channels of this rank: a mechanism whose messages begin together only
  // notes them. Returns at once; complete does so too.
  virtual void start() {}
  // Either end: wait for all messages queued since the last complete.
  virtual void complete(Completion completion) = 0;

  // One message and its completion in one call, for chains such as a ping-pong; a mechanism with a blocking call of its
  // own uses that. Not where one rank is both ends.
  virtual void put_now(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) {
    put(target_offset, source_offset, bytes);
    complete(Completion::kLocal);
  }
  virtual void get_now(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) {
    get(target_offset, source_offset, bytes);
    complete(Completion::kLocal);
  }

  // At the target: what has arrived was read. Patterns whose next message must not overwrite it before then
  // (reads_what_arrives of traffic/layout.h) call it once a message; a mechanism whose source writes into the target's
  // buffer unasked waits for it before its next put.
  virtual void consumed() {}

  // Whether this end's complete() waits for no other rank's complete(). A rank with several ends completes these
  // first; otherwise two ranks would wait for each other.
  virtual bool completes_first() const = 0;
  // The streams that put or get queue on at this end; none where messages are not queued on a device.
  virtual std::vector<DeviceQueue> queues() const { return {}; }
};

struct Flow {
  int source = 0;  // ranks of the case's group
  int target = 0;
  const Buffer* source_buffer = nullptr;  // set on the source's rank
  const Buffer* target_buffer = nullptr;  // set on the target's rank
  std::size_t bytes = 0;                  // of the largest message
  int messages = 1;                       // in one operation with a window of 1
  int ordinal = 0;                        // among those from its source to its target (Flows::add)

  int peer_of(int rank) const { return source == rank ? target : source; }  // the other end's rank
  bool ends_at(int rank) const { return source == rank || target == rank; }
};

// The flows of an operation. Those from one rank to another are numbered as they come, and both ranks have them in one
// order: source, target and ordinal name a flow on both.
class Flows {
 public:
  Flows() = default;
  Flows(std::initializer_list<Flow> flows) {
    for (const Flow& flow : flows) add(flow);
  }
  void add(Flow flow) {
    flow.ordinal = counts_[{flow.source, flow.target}]++;
    flows_.push_back(flow);
  }
  std::size_t size() const { return flows_.size(); }
  bool empty() const { return flows_.empty(); }
  const Flow& operator[](std::size_t place) const { return flows_[place]; }
  Flow& operator[](std::size_t place) { return flows_[place]; }
  auto begin() const { return flows_.begin(); }
  auto end() const { return flows_.end(); }

 private:
  std::vector<Flow> flows_;
  std::map<std::pair<int, int>, int> counts_;  // by source and target
};

class Operation;
struct PeerBuffer;  // transport/peer_memory.h
enum class ExposedEnd : std::uint8_t;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;

  // What all ranks of a launch do together before a case's ranks prepare it; collective over them. `launch` knows this
  // rank's own device alone; `rank`: this rank's number among the case's, -1 where it is none of them.
  virtual void meet(const RankContext& /*launch*/, const CaseSpec& /*spec*/, int /*rank*/) {}
  // Memory of what is sent, received or reduced; a mechanism may want it to be of its own making. Throws MemoryError.
  virtual Buffer make_buffer(const RankContext& context, const CaseSpec& /*spec*/, MemoryKind kind, std::size_t bytes,
                             const AllocateOptions& options) const {
    return Buffer(*context.runtime, context.device(), kind, bytes, options);
  }

  // open_peers, by which a collective's kernels reach into other ranks' memory, unless the library has a way of its own
  // to what make_buffer gave.
  virtual std::vector<PeerBuffer> peers(const RankContext& context, const CaseSpec& spec, const Flows& flows,
                                        ExposedEnd end);

  // Whether a message is queued by one of its two ranks alone.
  virtual bool one_sided() const { return false; }
  // Whether it has a way of its own for a pattern that is else a device's (PatternKind::kDevice): collective() gives
  // it.
  virtual bool brings_own(const CaseSpec& /*spec*/) const { return false; }
  // Whether each operation begins a kernel of its own on a device.
  virtual bool begins_kernels(const Mechanism& /*by*/) const { return false; }

  // The words that a case's variant may be made of (transport/options.h).
  virtual std::vector<std::string_view> variants() const { return {}; }
  // Whether its library can have settings of a case's own.
  virtual bool takes_settings() const { return false; }

  // Empty: yes. Otherwise why not, in one sentence that a user can act on. Not collective; every rank gives the same
  // answer.
  virtual std::string supports(const RankContext& context, const CaseSpec& spec) const = 0;

  // Connects an operation's flows, collective over the context's group. Each rank gives those that it is an end of;
  // element i is this rank's end of flows[i]. Exchanges handles; throws Unsupported or RuntimeCallError. Left out by
  // mechanisms that bring all their operations.
  virtual std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                        const Flows& flows);

  // The mechanism's own collective for the case's pattern, or nullptr where operation/ is to compose one over channels.
  virtual std::unique_ptr<Operation> collective(const RankContext& context, const CaseSpec& spec);

  // What waits call while this transport's messages are under way; empty where none is needed.
  virtual Progress progress(const RankContext& /*context*/) { return {}; }
};

// The transport of that name, or throws CallerError naming those there are.
std::unique_ptr<Transport> make_transport(std::string_view name);
std::vector<std::string_view> transport_names();

}  // namespace linkgauge
