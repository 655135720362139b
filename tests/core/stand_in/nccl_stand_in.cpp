// A stand-in for libnccl.so.2 over the CUDA stand-in: ranks are threads of one process or, for collectives, a process
// each that MPI started; memory is the host's, and what a call queues runs on the stand-in's stream when its turn comes
// and all ranks have come to it. Messages and windows between processes are refused. Compiled a second time
// against the vendor's nccl.h (LINKGAUGE_VENDOR_HEADERS), where any difference of a signature is an error.
//
// Settings as machine.h says ("fail=ncclAllReduce:2:3"), and LINKGAUGE_STAND_IN_NCCL_VERSION: one version code, or
// several, of which a rank of a launch of processes takes its own. LINKGAUGE_STAND_IN_NCCL_CLUSTERS_US: so much longer
// a collective takes unless NCCL_CGA_CLUSTER_SIZE or the communicator's own configuration says 0.
// LINKGAUGE_STAND_IN_NCCL_AGE at build: 0 as 2.28; 1 without what came after 2.18; 2 without send and receive, as
// before 2.7; 3 as 2.32, which tells the host where a window lies on other ranks, has barriers for kernels and takes
// settings of a call. LINKGAUGE_STAND_IN_NCCL_DEVICE=0: it has nothing for kernels.
#ifdef LINKGAUGE_VENDOR_HEADERS
#include <nccl.h>
#include <nccl_device/host.h>
#else
#include "nccl_types.h"
#endif

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/case_spec.h"
#include "device/host_kernels.h"
#include "gate.h"
#include "kernels/direct_text.h"
#include "kernels/kernels.h"
#include "machine.h"

#ifndef LINKGAUGE_STAND_IN_NCCL_AGE
#define LINKGAUGE_STAND_IN_NCCL_AGE 0
#endif

namespace {

using stand_in::Machine;

enum class Kind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAlltoAll,
  kGather,
  kScatter
};

// One rank's part of a collective, as it was called.
struct Call {
  Kind kind{};
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = 0;
  int root = 0;
  bool same_as(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op && root == other.root;
  }
};

struct Message {
  const void* data;
  std::size_t bytes;
  int type;
  bool taken;
};

// What the ranks of a communicator share. All waits end at once when somebody aborts or calls differ.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0;
  int joined = 0;
  int wrong = 0;                                       // an ncclResult_t that every rank gets to see
  std::map<std::uint64_t, std::vector<Call>> arrived;  // by the number of the collective
  std::map<std::uint64_t, int> done;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> mail;  // (source, target)
  std::set<std::tuple<int, int, bool>> connected;                            // (rank, peer, sends): ends of connections
  std::vector<std::uint64_t> next;  // by rank: the number of its next collective, counted when its turn has come
  std::map<std::uint64_t, std::map<int, std::pair<std::byte*, std::size_t>>> windows;  // by number and rank: its buffer
  int met = 0;                                                                         // kernels at the barrier in hand
  int turn = 0;
};

// The same of processes, in a file that the identifier names. What a rank puts in, it puts here.
constexpr int kMostProcesses = 16;
constexpr std::size_t kMostOperandBytes = std::size_t{1} << 20;
struct Between {
  stand_in::Gate gate;
  std::array<Call, kMostProcesses> calls;
  std::array<std::array<std::byte, kMostOperandBytes>, kMostProcesses> operands;
};

struct Part {  // of a group: a send or a receive
  bool sends;
  std::byte* data;
  std::size_t bytes;
  int type;
  int peer;
};

}  // namespace

struct Window {
  ncclComm* communicator;
  std::uint64_t number;
};

struct ncclComm {
  std::shared_ptr<Shared> shared;
  std::shared_ptr<Between> between;  // nullptr: ranks are threads
  int rank = 0;
  std::uint64_t windows_made = 0;
  std::map<void*, std::unique_ptr<Window>> windows;
  std::map<void*, std::unique_ptr<char>> registered;  // by handle, which is no more than an address of its own
  std::string last;
  int cluster = -1;   // of its configuration; -1: it says nothing
  int on_device = 0;  // of it as kernels have it, which go with it when it is aborted
};

namespace {

ncclResult_t code(int value) { return static_cast<ncclResult_t>(value); }

std::mutex rendezvous_mutex;
std::map<std::string, std::shared_ptr<Shared>> rendezvous;
std::string last_configuration;
std::atomic<int> identifiers{0};
std::string last_selection;
std::atomic<int> communicators{0};
std::atomic<int> device_communicators{0};
std::atomic<int> allocations{0};

struct Queued {
  ncclComm* communicator;
  stand_in::Stream* stream;
  std::vector<Part> parts;
};
thread_local int group_depth = 0;
thread_local std::vector<Queued> group_parts;  // a communicator and stream each

std::size_t bytes_of(int type) {
  static constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? kBytes[type] : 0;
}

linkgauge::Datatype datatype_of(int type) {
  using linkgauge::Datatype;
  switch (type) {
    case ncclInt8:
      return Datatype::kInt8;
    case ncclUint8:
      return Datatype::kUint8;
    case ncclInt32:
      return Datatype::kInt32;
    case ncclUint32:
      return Datatype::kUint32;
    case ncclInt64:
      return Datatype::kInt64;
    case ncclUint64:
      return Datatype::kUint64;
    case ncclFloat16:
      return Datatype::kFloat16;
    case ncclFloat64:
      return Datatype::kFloat64;
    case ncclBfloat16:
      return Datatype::kBfloat16;
    case ncclFloat8e4m3:
      return Datatype::kFloat8E4m3;
    case ncclFloat8e5m2:
      return Datatype::kFloat8E5m2;
    default:
      return Datatype::kFloat32;
  }
}

linkgauge::ReduceOp op_of(int op) {
  using linkgauge::ReduceOp;
  static constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAvg};
  static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4);
  return kOps[op];
}

// The reduction of `elements` elements at `offset` bytes of every rank's operand.
std::vector<std::byte> reduced(const std::vector<Call>& calls, std::size_t offset, std::size_t elements) {
  const Call& any = calls[0];
  std::vector<std::byte> result(elements * bytes_of(any.type));
  std::vector<const void*> operands;
  for (const Call& call : calls) operands.push_back(call.send + offset);
  void* target = result.data();
  const void* sources = operands.data();
  auto count = static_cast<std::int32_t>(calls.size());
  std::uint64_t length = elements;
  auto datatype = static_cast<std::uint32_t>(datatype_of(any.type));
  auto op = static_cast<std::uint32_t>(op_of(any.op));
  void* arguments[] = {&target, &sources, &count, &length, &datatype, &op};
  linkgauge::host_kernel(linkgauge::kKernelReduce).run(arguments, {1, 1, 0});
  return result;
}

// What a rank receives, of all operands.
std::vector<std::byte> received_by(std::size_t rank, const std::vector<Call>& calls) {
  const Call& any = calls[0];
  const std::size_t block = any.count * bytes_of(any.type);
  std::vector<std::byte> result;
  const auto add = [&](const std::byte* data) { result.insert(result.end(), data, data + block); };
  const auto root = static_cast<std::size_t>(any.root);
  switch (any.kind) {
    case Kind::kAllReduce:
      return reduced(calls, 0, any.count);
    case Kind::kReduce:
      return rank == root ? reduced(calls, 0, any.count) : result;
    case Kind::kReduceScatter:
      return reduced(calls, rank * block, any.count);
    case Kind::kBroadcast:
      add(calls[root].send);
      break;
    case Kind::kAllGather:
      for (const Call& from : calls) add(from.send);
      break;
    case Kind::kAlltoAll:
      for (const Call& from : calls) add(from.send + rank * block);
      break;
    case Kind::kGather:
      for (const Call& from : calls) {
        if (rank == root) add(from.send);
      }
      break;
    case Kind::kScatter:
      add(calls[root].send + rank * block);
      break;
  }
  return result;
}

void put_bytes(const Call& call, const std::vector<std::byte>& result) {
  if (!result.empty()) std::memcpy(call.receive, result.data(), result.size());
}

// All is worked out before any result is written, so that in place is like out of it.
void move_bytes(const std::vector<Call>& calls) {
  std::vector<std::vector<std::byte>> results;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) results.push_back(received_by(rank, calls));
  for (std::size_t rank = 0; rank < calls.size(); ++rank) put_bytes(calls[rank], results[rank]);
}

struct Range {
  const std::byte* begin;
  std::size_t bytes;
};
bool overlap(const Range& one, const Range& other) {
  return one.bytes > 0 && other.bytes > 0 && one.begin < other.begin + other.bytes &&
         other.begin < one.begin + one.bytes;
}

// What a rank's call reads and writes, and where the result must begin when the two overlap.
struct Buffers {
  Range sent;
  Range received;
  const std::byte* in_place;
};
Buffers buffers_of(const Call& call, int rank, int ranks) {
  const std::size_t block = call.count * bytes_of(call.type);
  const std::size_t all = block * static_cast<std::size_t>(ranks);
  const std::size_t place = block * static_cast<std::size_t>(rank);
  const bool is_root = rank == call.root;
  Buffers found{{call.send, block}, {call.receive, block}, call.send};
  switch (call.kind) {
    case Kind::kAllReduce:
      break;
    case Kind::kReduce:
      if (!is_root) found.received.bytes = 0;
      break;
    case Kind::kBroadcast:
      if (!is_root) found.sent.bytes = 0;
      break;
    case Kind::kAllGather:
      found.received.bytes = all;
      found.in_place = call.send - place;
      break;
    case Kind::kReduceScatter:
      found.sent.bytes = all;
      found.in_place = call.send + place;
      break;
    case Kind::kAlltoAll:
      found.sent.bytes = found.received.bytes = all;
      found.in_place = nullptr;
      break;
    case Kind::kGather:
      found.received.bytes = is_root ? all : 0;
      found.in_place = call.send - place;
      break;
    case Kind::kScatter:
      found.sent.bytes = is_root ? all : 0;
      found.in_place = call.send + place;
      break;
  }
  return found;
}

// Buffers that are needed are there, and where the two overlap it is the in-place form that nccl.h names.
bool buffers_are_right(const Call& call, int rank, int ranks) {
  const auto [sent, received, in_place] = buffers_of(call, rank, ranks);
  if (sent.bytes > 0 && sent.begin == nullptr) return false;
  if (received.bytes > 0 && received.begin == nullptr) return false;
  return !overlap(sent, received) || received.begin == in_place;
}

// Waits for `ready`, an abort, or a difference; whether it is ready.
template <typename Ready>
bool await(Shared& shared, std::unique_lock<std::mutex>& lock, const Ready& ready) {
  if (!shared.changed.wait_for(lock, stand_in::kPatience, [&] { return shared.wrong != 0 || ready(); })) {
    shared.wrong = ncclRemoteError;
    shared.changed.notify_all();
  }
  return shared.wrong == 0;
}

void run_collective(const std::shared_ptr<Shared>& shared, int rank, const Call& call) {
  std::unique_lock lock(shared->mutex);
  const std::uint64_t number = shared->next[static_cast<std::size_t>(rank)]++;
  std::vector<Call>& calls = shared->arrived[number];
  calls.resize(static_cast<std::size_t>(shared->ranks));
  calls[static_cast<std::size_t>(rank)] = call;
  if (++shared->done[number] == shared->ranks) {
    for (const Call& other : calls) {
      if (!other.same_as(call)) shared->wrong = ncclInvalidUsage;
    }
    if (shared->wrong == 0) move_bytes(calls);
    shared->done[number] += shared->ranks;  // from here on the ranks that have left are counted
    shared->changed.notify_all();
  } else if (!await(*shared, lock, [&] { return shared->done[number] >= 2 * shared->ranks; })) {
    return;
  }
  if (++shared->done[number] < 3 * shared->ranks) return;
  shared->done.erase(number);
  shared->arrived.erase(number);
}

// The same of processes: each puts its operand where all see it, and works out what it receives itself.
void run_between(const std::shared_ptr<Between>& between, int rank, int ranks, const Call& call) {
  const auto place = static_cast<std::size_t>(rank);
  const Range sent = buffers_of(call, rank, ranks).sent;
  stand_in::Gate& gate = between->gate;
  if (sent.bytes > kMostOperandBytes) gate.wrong = ncclSystemError;
  if (gate.wrong != 0) return;
  if (sent.bytes > 0) std::memcpy(between->operands[place].data(), sent.begin, sent.bytes);
  between->calls[place] = call;
  const auto met = [&] {
    if (!gate.meet(ranks) && gate.wrong == 0) gate.wrong = ncclRemoteError;
    return gate.wrong == 0;
  };
  if (!met()) return;
  std::vector<Call> calls(between->calls.begin(), between->calls.begin() + ranks);
  for (std::size_t other = 0; other < calls.size(); ++other) {
    if (!calls[other].same_as(call)) gate.wrong = ncclInvalidUsage;
    calls[other].send = between->operands[other].data();
  }
  if (gate.wrong == 0) put_bytes(call, received_by(place, calls));
  (void)met();  // none puts its next operand there while another reads this one
}

// All sends and receives of a group at once: each waits for its partner, none for another of its own rank.
void run_messages(const std::shared_ptr<Shared>& shared, int rank, const std::vector<Part>& parts) {
  std::unique_lock lock(shared->mutex);
  std::vector<std::shared_ptr<Message>> sent;
  for (const Part& part : parts) {
    if (!part.sends) continue;
    sent.push_back(std::make_shared<Message>(Message{part.data, part.bytes, part.type, false}));
    shared->mail[{rank, part.peer}].push_back(sent.back());
  }
  shared->changed.notify_all();
  for (const Part& part : parts) {
    if (part.sends) continue;
    auto& box = shared->mail[{part.peer, rank}];
    if (!await(*shared, lock, [&] { return !box.empty(); })) return;
    const std::shared_ptr<Message> message = box.front();
    box.pop_front();
    if (message->bytes != part.bytes || message->type != part.type) {
      shared->wrong = ncclInvalidUsage;
    } else {
      std::memmove(part.data, message->data, part.bytes);
      message->taken = true;
    }
    shared->changed.notify_all();
  }
  for (const std::shared_ptr<Message>& message : sent) {
    if (!await(*shared, lock, [&] { return message->taken; })) return;
  }
}

stand_in::Stream* stream_of(cudaStream_t stream) { return reinterpret_cast<stand_in::Stream*>(stream); }

// A line of NCCL's log in the file that is asked for, where this subsystem is.
void tell(const std::string& subsystem, const std::string& words) {
  const char* level = std::getenv("NCCL_DEBUG");
  const char* pattern = std::getenv("NCCL_DEBUG_FILE");
  const char* asked = std::getenv("NCCL_DEBUG_SUBSYS");
  if (level == nullptr || std::string(level) != "INFO" || pattern == nullptr) return;
  if (asked != nullptr && std::string(asked).find(subsystem) == std::string::npos) return;
  std::string path = pattern;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string short_name = std::string(host).substr(0, std::string(host).find('.'));
  for (const auto& [word, meaning] : {std::pair{"%p", std::to_string(getpid())}, std::pair{"%h", short_name}}) {
    if (const std::size_t place = path.find(word); place != std::string::npos) path.replace(place, 2, meaning);
  }
  std::ofstream(path, std::ios::app) << "host:1:2 [0] NCCL INFO " << words << "\n";
}

// The variables that this library reads, and NCCL_NTHREADS, of which it has the name alone.
void tell_variables() {
  for (const char* name :
       {"NCCL_ALGO", "NCCL_PROTO", "NCCL_NTHREADS", "NCCL_CGA_CLUSTER_SIZE", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && std::string(name) != "NCCL_NTHREADS") {
      tell("ENV", std::string(name) + " set by environment to " + value);
    }
  }
}

bool asked_for_tree() {
  const char* algorithm = std::getenv("NCCL_ALGO");
  return algorithm != nullptr && std::string(algorithm) == "Tree";
}

// Planted: so many us that a collective takes longer unless NCCL_ALGO is Tree.
void wait_unless_tree() {
  const char* late = std::getenv("LINKGAUGE_STAND_IN_NCCL_NO_TREE_US");
  if (late == nullptr || asked_for_tree()) return;
  std::this_thread::sleep_for(std::chrono::microseconds(std::atoi(late)));
}

// Planted: so many us that a collective takes longer where its kernel has clusters. The environment wins, as in NCCL.
void wait_unless_without_clusters(int configured) {
  const char* late = std::getenv("LINKGAUGE_STAND_IN_NCCL_CLUSTERS_US");
  const char* asked = std::getenv("NCCL_CGA_CLUSTER_SIZE");
  if (late == nullptr || (asked != nullptr ? std::atoi(asked) : configured) == 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(std::atoi(late)));
}

// The line by which NCCL 2.28 tells what it chose (enqueue.cc).
void tell_choice(const Call& call, int rank) {
  if (rank != 0 || std::getenv("NCCL_DEBUG_FILE") == nullptr) return;
  static constexpr const char* kFunctions[] = {"AllReduce",     "Reduce",   "Broadcast", "AllGather",
                                               "ReduceScatter", "AlltoAll", "Gather",    "Scatter"};
  if (std::getenv("LINKGAUGE_STAND_IN_LOG_DIES") != nullptr) std::abort();
  tell("TUNING", std::string(kFunctions[static_cast<int>(call.kind)]) + ": " +
                     std::to_string(call.count * bytes_of(call.type)) + " Bytes -> Algo " +
                     (asked_for_tree() ? "TREE" : "RING") + " proto LL128 channel{Lo..Hi}={0..3}");
}

ncclResult_t queue_collective(const Call& call, ncclComm_t communicator, cudaStream_t stream) {
  const int ranks = communicator->shared->ranks;
  if (stream == nullptr || bytes_of(call.type) == 0 || call.op < 0 || call.op > 4 || call.root < 0 ||
      call.root >= ranks || group_depth > 0 || !buffers_are_right(call, communicator->rank, ranks)) {
    communicator->last = "a collective's arguments";
    return code(ncclInvalidArgument);
  }
  tell_choice(call, communicator->rank);
  stream_of(stream)->push([shared = communicator->shared, between = communicator->between, rank = communicator->rank,
                           ranks, call, own = communicator->cluster] {
    wait_unless_tree();
    wait_unless_without_clusters(own);
    if (between != nullptr) {
      run_between(between, rank, ranks, call);
    } else {
      run_collective(shared, rank, call);
    }
  });
  return code(0);
}

// As NCCL: two ranks connect when they first need it, in the call, where each waits for the other's end.
void connect_ends(const Queued& queued) {
  Shared& shared = *queued.communicator->shared;
  const int rank = queued.communicator->rank;
  std::unique_lock lock(shared.mutex);
  for (const Part& part : queued.parts) shared.connected.insert({rank, part.peer, part.sends});
  shared.changed.notify_all();
  for (const Part& part : queued.parts)
    await(shared, lock, [&] {
      return part.peer == rank || shared.connected.count({part.peer, rank, !part.sends}) > 0;
    });
}

void push_group(const Queued& queued) {
  connect_ends(queued);
  queued.stream->push([shared = queued.communicator->shared, rank = queued.communicator->rank, parts = queued.parts] {
    run_messages(shared, rank, parts);
  });
}

[[maybe_unused]] ncclResult_t queue_part(const Part& part, ncclComm_t communicator, cudaStream_t stream) {
  if (stream == nullptr || part.data == nullptr || bytes_of(part.type) == 0 || part.peer < 0 ||
      part.peer >= communicator->shared->ranks || communicator->between != nullptr) {
    communicator->last = "a message's arguments";
    return code(ncclInvalidArgument);
  }
  for (Queued& queued : group_parts) {
    if (queued.communicator != communicator || queued.stream != stream_of(stream)) continue;
    queued.parts.push_back(part);
    return code(0);
  }
  Queued queued{communicator, stream_of(stream), {part}};
  if (group_depth > 0) {
    group_parts.push_back(std::move(queued));
  } else {
    push_group(queued);
  }
  return code(0);
}

// This process's place among those that MPI started; -1: it did not.
int own_process() {
  int rank = -1;
  for (const char* variable : {"PMI_RANK", "OMPI_COMM_WORLD_RANK"}) {
    if (const char* word = std::getenv(variable); word != nullptr) rank = std::atoi(word);
  }
  return rank;
}

int own_version(int built_as) {
  const char* text = std::getenv("LINKGAUGE_STAND_IN_NCCL_VERSION");
  if (text == nullptr) return built_as;
  const int rank = own_process();
  std::istringstream words(text);
  std::string word;
  for (int i = 0; std::getline(words, word, ',') && i < rank; ++i) continue;
  return std::atoi(word.c_str());
}

// The file where processes meet, all zeros; its path is the identifier.
int make_file(char* path, std::size_t most) {
  const char* folder = std::getenv("TMPDIR");
  (void)std::snprintf(path, most, "%s/stand-in-XXXXXX", folder != nullptr ? folder : "/tmp");
  const int file = mkstemp(path);
  if (file < 0) return ncclSystemError;
  const int status = ftruncate(file, sizeof(Between));
  close(file);
  if (status != 0) return ncclSystemError;
  return 0;
}

int join_processes(ncclComm_t* communicator, const std::string& path, int ranks, int rank) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 || ranks > kMostProcesses) return ncclSystemError;
  void* const memory = mmap(nullptr, sizeof(Between), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return ncclSystemError;
  const std::shared_ptr<Between> between(static_cast<Between*>(memory),
                                         [](Between* mapped) { munmap(mapped, sizeof(Between)); });
  const int planted = Machine::instance().fault("ncclCommInitRank");
  if (planted != 0) between->gate.wrong = ncclRemoteError;  // for the others: their peer's connection went
  const bool met = planted == 0 && between->gate.meet(ranks);
  if (rank == 0) unlink(path.c_str());
  if (planted != 0) return planted;
  if (!met) return ncclRemoteError;
  auto shared = std::make_shared<Shared>();
  shared->ranks = ranks;
  *communicator = new ncclComm{shared, between, rank, 0, {}, {}, {}};
  ++communicators;
  tell_variables();
  return 0;
}

// --- what kernels that meet by its barriers do (core/kernels/linked/nccl.cu) ----------------------------------------

#if LINKGAUGE_STAND_IN_NCCL_AGE == 3
constexpr std::size_t kDeviceBytes = 64;  // of a communicator as kernels have it
struct OnDevice {
  unsigned magic;
  unsigned version;
  ncclComm* communicator;
};

template <typename Value>
Value argument(void** arguments, int number) {
  Value value{};
  std::memcpy(&value, arguments[number], sizeof value);
  return value;
}

// Whether all ranks came to the barrier in time.
bool meet(Shared& shared, std::uint64_t patience_ns) {
  std::unique_lock lock(shared.mutex);
  const int turn = shared.turn;
  if (++shared.met == shared.ranks) {
    shared.met = 0;
    ++shared.turn;
    shared.changed.notify_all();
    return true;
  }
  return shared.changed.wait_for(lock, std::chrono::nanoseconds(patience_ns), [&] { return shared.turn != turn; });
}

// (communicator, rounds, patience, gave_up): some of the rounds.
void run_lsa_barrier(void** arguments, unsigned, unsigned) {
  constexpr std::uint64_t kMostRounds = 3;
  Shared& shared = *argument<OnDevice>(arguments, 0).communicator->shared;
  for (std::uint64_t round = 1; round <= std::min(argument<std::uint64_t>(arguments, 1), kMostRounds); ++round) {
    if (meet(shared, argument<std::uint64_t>(arguments, 2))) continue;
    *argument<std::uint64_t*>(arguments, 3) = round;
    return;
  }
}

// (communicator, lists, ranks, rank, elements, datatype, op, mode, epoch, patience, failure)
void run_lsa_allreduce(void** arguments, unsigned, unsigned) {
  namespace direct = linkgauge::direct;
  Shared& shared = *argument<OnDevice>(arguments, 0).communicator->shared;
  void* const* const lists = argument<void* const*>(arguments, 1);
  const int ranks = argument<int>(arguments, 2);
  const int rank = argument<int>(arguments, 3);
  const auto datatype = argument<std::uint32_t>(arguments, 5);
  const std::size_t element = size_of(static_cast<linkgauge::Datatype>(datatype));
  const std::uint64_t bytes = argument<std::uint64_t>(arguments, 4) * element;
  const auto mode = argument<std::uint32_t>(arguments, 7);
  const auto came = [&](std::uint64_t meeting) {
    if (meet(shared, argument<std::uint64_t>(arguments, 9))) return true;
    *argument<std::uint64_t*>(arguments, 10) =
        direct::failure_word({argument<std::uint64_t>(arguments, 8), meeting, (rank + 1) % ranks, 0});
    return false;
  };
  const auto target = [&](int of) { return static_cast<std::byte*>(lists[ranks + of]); };
  if (!came(1)) return;
  const direct::Part part = mode == direct::kOneShot ? direct::Part{0, bytes} : direct::part_of(bytes, ranks, rank);
  std::vector<const void*> operands;
  for (int of = 0; of < ranks; ++of) operands.push_back(static_cast<const std::byte*>(lists[of]) + part.offset);
  void* result = target(rank) + part.offset;
  const void* const* sources = operands.data();
  std::int32_t count = ranks;
  std::uint64_t elements = part.bytes / element;
  std::uint32_t type = datatype;
  auto op = argument<std::uint32_t>(arguments, 6);
  void* reduction[] = {&result, &sources, &count, &elements, &type, &op};
  linkgauge::host_kernel(linkgauge::kKernelReduce).run(reduction, {1, 1, 0});
  for (int to = 0; mode == direct::kTwoShotPush && to < ranks; ++to) {
    if (to != rank) std::memcpy(target(to) + part.offset, result, part.bytes);
  }
  if (mode == direct::kTwoShotPull) {
    if (!came(2)) return;
    for (int from = 0; from < ranks; ++from) {
      const direct::Part its = direct::part_of(bytes, ranks, from);
      if (from != rank) std::memcpy(target(rank) + its.offset, target(from) + its.offset, its.bytes);
    }
  }
  (void)came(direct::kMeetings);
}

// Has the stand-in driver run these.
bool tell_driver() {
  constexpr std::array<unsigned char, 4> kBarrierArguments{kDeviceBytes, 8, 8, 8};
  constexpr std::array<unsigned char, 11> kAllreduceArguments{kDeviceBytes, 8, 4, 4, 8, 4, 4, 4, 8, 8, 8};
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  auto* const extend = reinterpret_cast<decltype(&stand_in_extend)>(dlsym(driver, "stand_in_extend"));
  dlclose(driver);
  if (extend == nullptr) return false;
  extend("lg_lsa_barrier", kBarrierArguments.data(), kBarrierArguments.size(), run_lsa_barrier);
  extend("lg_lsa_allreduce", kAllreduceArguments.data(), kAllreduceArguments.size(), run_lsa_allreduce);
  return true;
}
#endif

}  // namespace

#define STAND_IN(name) LINKGAUGE_STAND_IN_EXPORT ncclResult_t name
#define FAULT(name) \
  if (const int wrong = Machine::instance().fault(#name); wrong != 0) return code(wrong)
#define COLLECTIVE(name, kind, send, receive, count, type, op, root) \
  FAULT(name);                                                       \
  const Call call{kind,                                              \
                  static_cast<const std::byte*>(send),               \
                  static_cast<std::byte*>(receive),                  \
                  count,                                             \
                  static_cast<int>(type),                            \
                  static_cast<int>(op),                              \
                  root};                                             \
  return queue_collective(call, communicator, stream)

STAND_IN(ncclGetVersion)(int* version) {
  FAULT(ncclGetVersion);
  constexpr int kBuiltAs[] = {22809, 21805, 2604, 23203};
  *version = own_version(kBuiltAs[LINKGAUGE_STAND_IN_NCCL_AGE]);
  return code(0);
}
STAND_IN(ncclGetUniqueId)(ncclUniqueId* id) {
  FAULT(ncclGetUniqueId);
  std::memset(id, 0, sizeof *id);
  if (own_process() >= 0) return code(make_file(id->internal, sizeof id->internal));
  const std::string name = std::to_string(getpid()) + "/" + std::to_string(++identifiers);
  std::memcpy(id->internal, name.c_str(), name.size());
  return code(0);
}
STAND_IN(ncclCommInitRank)(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  const std::string name(id.internal);
  if (own_process() >= 0) return code(join_processes(communicator, name, ranks, rank));
  std::shared_ptr<Shared> shared;
  {
    const std::lock_guard lock(rendezvous_mutex);
    std::shared_ptr<Shared>& place = rendezvous[name];
    if (!place) place = std::make_shared<Shared>();
    shared = place;
  }
  const int planted = Machine::instance().fault("ncclCommInitRank");
  std::unique_lock lock(shared->mutex);
  if (planted != 0) shared->wrong = ncclRemoteError;  // for the others: their peer's connection went
  shared->ranks = ranks;
  shared->next.resize(static_cast<std::size_t>(ranks));
  ++shared->joined;
  shared->changed.notify_all();
  if (planted != 0) return code(planted);
  if (!await(*shared, lock, [&] { return shared->joined == ranks; })) return code(shared->wrong);
  *communicator = new ncclComm{shared, nullptr, rank, 0, {}, {}, {}, -1, 0};
  ++communicators;
  tell_variables();
  return code(0);
}
#if LINKGAUGE_STAND_IN_NCCL_AGE != 2
// As parseCommConfig of NCCL: the size and the version say what is there, and a least number above the most is refused.
STAND_IN(ncclCommInitRankConfig)(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  (void)Machine::instance().fault("ncclCommInitRankConfig");  // counted; one that fails is ncclCommInitRank
  constexpr int kUndefined = INT_MIN;
  if (config->magic != 0xcafebeef || config->size < offsetof(ncclConfig_t, splitShare) || config->version < 21700)
    return ncclInvalidArgument;
  if (config->minCTAs > config->maxCTAs || (config->minCTAs != kUndefined && config->minCTAs <= 0))
    return ncclInvalidArgument;
  const ncclResult_t result = ncclCommInitRank(communicator, ranks, id, rank);
  if (result != 0) return result;
  (*communicator)->cluster = config->cgaClusterSize == kUndefined ? -1 : config->cgaClusterSize;
  const std::lock_guard lock(rendezvous_mutex);
  last_configuration = "cluster " + std::to_string((*communicator)->cluster) + " blocks " +
                       std::to_string(config->minCTAs) + ".." + std::to_string(config->maxCTAs) + " net " +
                       (config->netName == nullptr ? "none" : config->netName) + " version " +
                       std::to_string(config->version);
  if (config->version >= 22700 && config->CTAPolicy != kUndefined)
    last_configuration += " policy " + std::to_string(config->CTAPolicy);
  return code(0);
}
#endif
STAND_IN(ncclCommDestroy)(ncclComm_t communicator) {
  FAULT(ncclCommDestroy);
  const bool leaks = !communicator->registered.empty() || !communicator->windows.empty();
  delete communicator;
  --communicators;
  return leaks ? ncclInvalidUsage : code(0);
}
STAND_IN(ncclCommAbort)(ncclComm_t communicator) {
  FAULT(ncclCommAbort);
  if (communicator->between != nullptr) communicator->between->gate.wrong = ncclRemoteError;
  {
    const std::lock_guard lock(communicator->shared->mutex);
    if (communicator->shared->wrong == 0) communicator->shared->wrong = ncclRemoteError;
    communicator->shared->changed.notify_all();
  }
  device_communicators -= communicator->on_device;
  delete communicator;
  --communicators;
  return code(0);
}
STAND_IN(ncclCommGetAsyncError)(ncclComm_t communicator, ncclResult_t* state) {
  FAULT(ncclCommGetAsyncError);
  const std::lock_guard lock(communicator->shared->mutex);
  *state =
      code(communicator->between != nullptr ? communicator->between->gate.wrong.load() : communicator->shared->wrong);
  return code(0);
}
LINKGAUGE_STAND_IN_EXPORT const char* ncclGetErrorString(ncclResult_t result) {
  switch (static_cast<int>(result)) {
    case 0:
      return "no error";
    case 2:
      return "unhandled system error";
    case 3:
      return "internal error";
    case 4:
      return "invalid argument";
    case 5:
      return "invalid usage";
    case 6:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}
LINKGAUGE_STAND_IN_EXPORT const char* ncclGetLastError(ncclComm_t communicator) {
  return communicator == nullptr ? "" : communicator->last.c_str();
}
STAND_IN(ncclGroupStart)() {
  FAULT(ncclGroupStart);
  ++group_depth;
  return code(0);
}
STAND_IN(ncclGroupEnd)() {
  if (group_depth == 0) return code(ncclInvalidUsage);
  if (--group_depth > 0) return code(0);
  const std::vector<Queued> parts = std::move(group_parts);
  group_parts.clear();
  FAULT(ncclGroupEnd);
  for (const Queued& queued : parts) push_group(queued);
  return code(0);
}
#if LINKGAUGE_STAND_IN_NCCL_AGE != 2
STAND_IN(ncclSend)
(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream) {
  FAULT(ncclSend);
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return queue_part({true, bytes, count * bytes_of(type), static_cast<int>(type), peer}, communicator, stream);
}
STAND_IN(ncclRecv)
(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream) {
  FAULT(ncclRecv);
  auto* bytes = static_cast<std::byte*>(data);
  return queue_part({false, bytes, count * bytes_of(type), static_cast<int>(type), peer}, communicator, stream);
}
#endif
STAND_IN(ncclAllReduce)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator,
 cudaStream_t stream) {
  COLLECTIVE(ncclAllReduce, Kind::kAllReduce, send, receive, count, type, op, 0);
}
STAND_IN(ncclReduce)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
 ncclComm_t communicator, cudaStream_t stream) {
  COLLECTIVE(ncclReduce, Kind::kReduce, send, receive, count, type, op, root);
}
STAND_IN(ncclBroadcast)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
 cudaStream_t stream) {
  COLLECTIVE(ncclBroadcast, Kind::kBroadcast, send, receive, count, type, 0, root);
}
STAND_IN(ncclAllGather)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
 cudaStream_t stream) {
  COLLECTIVE(ncclAllGather, Kind::kAllGather, send, receive, count, type, 0, 0);
}
STAND_IN(ncclReduceScatter)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator,
 cudaStream_t stream) {
  COLLECTIVE(ncclReduceScatter, Kind::kReduceScatter, send, receive, count, type, op, 0);
}
#if LINKGAUGE_STAND_IN_NCCL_AGE % 3 == 0
STAND_IN(ncclAlltoAll)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
 cudaStream_t stream) {
  COLLECTIVE(ncclAlltoAll, Kind::kAlltoAll, send, receive, count, type, 0, 0);
}
STAND_IN(ncclGather)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
 cudaStream_t stream) {
  COLLECTIVE(ncclGather, Kind::kGather, send, receive, count, type, 0, root);
}
STAND_IN(ncclScatter)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
 cudaStream_t stream) {
  COLLECTIVE(ncclScatter, Kind::kScatter, send, receive, count, type, 0, root);
}
STAND_IN(ncclCommRegister)(const ncclComm_t communicator, void* data, std::size_t bytes, void** handle) {
  FAULT(ncclCommRegister);
  if (data == nullptr || bytes == 0) return code(ncclInvalidArgument);
  auto place = std::make_unique<char>();
  *handle = place.get();
  communicator->registered[*handle] = std::move(place);
  return code(0);
}
STAND_IN(ncclCommDeregister)(const ncclComm_t communicator, void* handle) {
  FAULT(ncclCommDeregister);
  if (communicator->registered.erase(handle) == 0) return code(ncclInvalidArgument);
  return code(0);
}
// Memory is the machine's of this library; its start is that of a page.
STAND_IN(ncclMemAlloc)(void** memory, std::size_t bytes) {
  FAULT(ncclMemAlloc);
  constexpr std::size_t kPage = 4096;
  *memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (*memory == nullptr) return code(ncclSystemError);
  ++allocations;
  return code(0);
}
STAND_IN(ncclMemFree)(void* memory) {
  FAULT(ncclMemFree);
  std::free(memory);
  --allocations;
  return code(0);
}
// The ranks make a window together, with buffers of one size. Without LINKGAUGE_STAND_IN_NCCL_WINDOWS=0 there is one.
STAND_IN(ncclCommWindowRegister)
(ncclComm_t communicator, void* data, std::size_t bytes, ncclWindow_t* window, int flags) {
  FAULT(ncclCommWindowRegister);
  constexpr std::uintptr_t kPage = 4096;
  if (data == nullptr || bytes == 0 || flags != 1 || reinterpret_cast<std::uintptr_t>(data) % kPage != 0 ||
      communicator->between != nullptr)
    return code(ncclInvalidArgument);
  const char* text = std::getenv("LINKGAUGE_STAND_IN_NCCL_WINDOWS");
  if (text != nullptr && std::string(text) == "0") return code(0);  // as a library without symmetric memory
  Shared& shared = *communicator->shared;
  std::unique_lock lock(shared.mutex);
  auto place = std::make_unique<Window>(Window{communicator, communicator->windows_made++});
  auto& buffers = shared.windows[place->number];
  buffers[communicator->rank] = {static_cast<std::byte*>(data), bytes};
  if (buffers.begin()->second.second != bytes) shared.wrong = ncclInvalidUsage;
  shared.changed.notify_all();
  if (!await(shared, lock, [&] { return static_cast<int>(buffers.size()) == shared.ranks; })) return code(shared.wrong);
  *window = reinterpret_cast<ncclWindow_t>(place.get());
  communicator->windows[*window] = std::move(place);
  return code(0);
}
STAND_IN(ncclCommWindowDeregister)(ncclComm_t communicator, ncclWindow_t window) {
  FAULT(ncclCommWindowDeregister);
  if (communicator->windows.erase(window) == 0) return code(ncclInvalidArgument);
  return code(0);
}
#if LINKGAUGE_STAND_IN_NCCL_AGE == 3
// Of an algorithm's choice it knows these, and has but the ring's: another is refused, as one is that is not to be had.
ncclResult_t select(const ncclCollConfig_t* config) {
  if (config->magic != 0xcafebeef || config->size != sizeof(ncclCollConfig_t) || config->version < 23200 ||
      config->forceAlgSelection != 1)
    return code(ncclInvalidArgument);
  last_selection = config->algSelection == nullptr ? "" : config->algSelection;
  const bool any = last_selection.empty() || last_selection.find("RING_") != std::string::npos;
  return any ? code(0) : ncclInvalidUsage;
}
#define CONFIGURED(call, ...)                                                    \
  const std::lock_guard lock(rendezvous_mutex);                                  \
  if (const ncclResult_t refused = select(config); refused != 0) return refused; \
  return call(__VA_ARGS__)
STAND_IN(ncclAllReduceConfig)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator,
 cudaStream_t stream, const ncclCollConfig_t* config) {
  CONFIGURED(ncclAllReduce, send, receive, count, type, op, communicator, stream);
}
STAND_IN(ncclReduceConfig)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
 ncclComm_t communicator, cudaStream_t stream, const ncclCollConfig_t* config) {
  CONFIGURED(ncclReduce, send, receive, count, type, op, root, communicator, stream);
}
STAND_IN(ncclBroadcastConfig)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
 cudaStream_t stream, const ncclCollConfig_t* config) {
  CONFIGURED(ncclBroadcast, send, receive, count, type, root, communicator, stream);
}
STAND_IN(ncclAllGatherConfig)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclComm_t communicator, cudaStream_t stream,
 const ncclCollConfig_t* config) {
  CONFIGURED(ncclAllGather, send, receive, count, type, communicator, stream);
}
STAND_IN(ncclReduceScatterConfig)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator,
 cudaStream_t stream, const ncclCollConfig_t* config) {
  CONFIGURED(ncclReduceScatter, send, receive, count, type, op, communicator, stream);
}
STAND_IN(ncclAlltoAllConfig)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclComm_t communicator, cudaStream_t stream,
 const ncclCollConfig_t* config) {
  CONFIGURED(ncclAlltoAll, send, receive, count, type, communicator, stream);
}
STAND_IN(ncclGatherConfig)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
 cudaStream_t stream, const ncclCollConfig_t* config) {
  CONFIGURED(ncclGather, send, receive, count, type, root, communicator, stream);
}
STAND_IN(ncclScatterConfig)
(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
 cudaStream_t stream, const ncclCollConfig_t* config) {
  CONFIGURED(ncclScatter, send, receive, count, type, root, communicator, stream);
}
STAND_IN(ncclCommQueryProperties)(ncclComm_t communicator, ncclCommProperties_t* properties) {
  FAULT(ncclCommQueryProperties);
  if (properties->size != sizeof(ncclCommProperties_t) || properties->magic != 0xcafebeef)
    return code(ncclInvalidArgument);
  const char* text = std::getenv("LINKGAUGE_STAND_IN_NCCL_DEVICE");
  properties->rank = communicator->rank;
  properties->nRanks = communicator->shared->ranks;
  properties->deviceApiSupport = text == nullptr || std::string(text) != "0";
  properties->nLsaTeams = 1;
  properties->devCommRuntimeVersionSize = kDeviceBytes;
  return code(0);
}
STAND_IN(ncclDevCommCreate)
(ncclComm_t communicator, const ncclDevCommRequirements_t* wanted, ncclDevComm_t* made) {
  FAULT(ncclDevCommCreate);
  if (wanted->size != sizeof(ncclDevCommRequirements_t) || wanted->magic != 0xcafebeef || !wanted->useRuntimeVersion ||
      wanted->lsaBarrierCount < 1 || communicator->between != nullptr || !tell_driver())
    return code(ncclInvalidArgument);
  const OnDevice mine{0xcafebeef, 23203, communicator};
  std::memcpy(made, &mine, sizeof mine);
  ++device_communicators;
  ++communicator->on_device;
  return code(0);
}
STAND_IN(ncclDevCommDestroy)(ncclComm_t communicator, const ncclDevComm_t*) {
  FAULT(ncclDevCommDestroy);
  --communicator->on_device;
  --device_communicators;
  return code(0);
}
STAND_IN(ncclGetPeerDevicePointer)(ncclWindow_t window, std::size_t offset, int peer, void** pointer) {
  FAULT(ncclGetPeerDevicePointer);
  const Window& found = *reinterpret_cast<Window*>(window);
  Shared& shared = *found.communicator->shared;
  const std::lock_guard lock(shared.mutex);
  const auto buffer = shared.windows[found.number].find(peer);
  if (buffer == shared.windows[found.number].end()) return code(ncclInvalidArgument);
  *pointer = buffer->second.first + offset;
  return code(0);
}
#endif
#endif

// How many communicators were not given back.
LINKGAUGE_STAND_IN_EXPORT int stand_in_communicators() { return communicators; }
// What the last communicator of its own configuration was told.
LINKGAUGE_STAND_IN_EXPORT const char* stand_in_configuration() { return last_configuration.c_str(); }
// What the last call of its own configuration may choose among; "" : all.
LINKGAUGE_STAND_IN_EXPORT const char* stand_in_selection() { return last_selection.c_str(); }
LINKGAUGE_STAND_IN_EXPORT int stand_in_device_communicators() { return device_communicators; }
// How much memory was not.
LINKGAUGE_STAND_IN_EXPORT int stand_in_allocations() { return allocations; }
