// Long: one library's calls, by the host and by kernels.
// A stand-in for libnvshmem_host.so.3 over the CUDA stand-in: PEs are processes, which meet in a file that the unique
// id names and open each other's memory as the CUDA stand-in shares it; what a call queues runs on that one's stream.
// Compiled a second time against the vendor's headers (LINKGAUGE_VENDOR_HEADERS), where any difference of a signature
// is an error.
//
// Settings as machine.h says, of the PE alone that LINKGAUGE_STAND_IN_NVSHMEM_PE names. A call that can return no code
// ends the process instead, as NVSHMEM's do; with kHang what it queued never ends, with kWrong its last byte is wrong.
// A team's collective wants places alike on all its PEs, as NVSHMEM's does, and ends the process where they differ.
// With LINKGAUGE_STAND_IN_NVSHMEM_TURNS PEs are said to take turns on a GPU, and none may wait on a stream.
// LINKGAUGE_STAND_IN_NVSHMEM_VERSION: "3.3.24", or several with commas between, of which a PE takes its own.
#ifdef LINKGAUGE_VENDOR_HEADERS
#include <cuda_runtime.h>
//
#include <nvshmem_host.h>
#else
#include "nvshmem_types.h"
#endif

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/case_spec.h"
#include "device/host_kernels.h"
#include "gate.h"
#include "kernels/kernels.h"
#include "machine.h"
#include "transport/nvshmem/api.h"

namespace {

using stand_in::Machine;

constexpr int kMostPes = 64;
constexpr int kWrong = 98;
constexpr int kHang = 99;
constexpr auto kTurn = std::chrono::microseconds(50);
constexpr int kMostTeams = 32;

// Of a team by PE: how often each has come, and with which places in the heap, from one call to the next by turns.
struct Coming {
  std::atomic<std::uint64_t> times;
  std::array<std::array<std::uint64_t, 3>, 2> places;
};

// What the PEs share; zeros at first.
struct Meeting {
  stand_in::Gate gate;
  struct Said {  // when a team is made
    int refused;
    std::uint32_t taken;
  };
  std::array<Said, kMostPes> said;
  std::array<std::array<Coming, kMostPes>, kMostTeams> teams;
  std::array<std::uint64_t, kMostPes> bytes;
  std::array<stand_in::Handle, kMostPes> heaps;
};

Meeting* meeting = nullptr;
int own_pe = -1;
int pes = 0;
std::byte* heap = nullptr;  // one allocation at a time
std::map<int, std::byte*> opened;
std::mutex opened_mutex;  // kernels reach from their streams' threads
// By number; empty: none, or this PE is not of it. All PEs of a team know it by one number.
std::array<std::vector<int>, kMostTeams> teams;
std::uint32_t numbers_taken = 0;  // a bit each

int wrong(const char* call) {
  const char* whose = std::getenv("LINKGAUGE_STAND_IN_NVSHMEM_PE");
  if (whose != nullptr && std::atoi(whose) != own_pe) return 0;
  return Machine::instance().fault(call);
}

[[noreturn]] void refuse(const char* call, const char* why) {
  std::fprintf(stderr, "stand-in NVSHMEM: PE %d: %s: %s\n", own_pe, call, why);
  std::_Exit(255);
}

void meet_or_refuse(const char* call) {
  if (meeting == nullptr) refuse(call, "NVSHMEM has not begun");
  if (!meeting->gate.meet(pes)) refuse(call, "not all PEs came");
}

// Where this PE reaches what `pe` has at that place of the heap; nullptr where it is outside of it.
std::byte* reach(const void* place, std::size_t bytes, int pe) {
  if (meeting == nullptr || heap == nullptr || pe < 0 || pe >= pes) return nullptr;
  const auto* const there = static_cast<const std::byte*>(place);
  const std::size_t held = meeting->bytes[static_cast<std::size_t>(own_pe)];
  if (there < heap || there + bytes > heap + held) return nullptr;
  if (pe == own_pe) return heap + (there - heap);
  const std::lock_guard lock(opened_mutex);
  std::byte*& known = opened[pe];
  if (known == nullptr) {
    const stand_in::Handle& handle = meeting->heaps[static_cast<std::size_t>(pe)];
    known = static_cast<std::byte*>(Machine::instance().open(handle, 0));
    if (known == nullptr) refuse("opening a peer's memory", "it was refused");
  }
  return known + (there - heap);
}

stand_in::Stream& stream_of(const char* call, cudaStream_t stream) {
  if (stream == nullptr) refuse(call, "no stream");
  return *reinterpret_cast<stand_in::Stream*>(stream);
}

bool takes_turns() { return std::getenv("LINKGAUGE_STAND_IN_NVSHMEM_TURNS") != nullptr; }

void queue_signal(const char* call, std::uint64_t* word, std::uint64_t value, int operation, int pe,
                  cudaStream_t stream) {
  auto* const there = reinterpret_cast<std::uint64_t*>(reach(word, sizeof *word, pe));
  if (there == nullptr) refuse(call, "a signal that is not symmetric");
  if (operation != NVSHMEM_SIGNAL_ADD) refuse(call, "this stand-in's signals add");
  stream_of(call, stream).push([=] { std::atomic_ref(*there).fetch_add(value, std::memory_order_release); });
}

void queue_copy(const char* call, void* target, const void* source, std::size_t bytes, cudaStream_t stream) {
  if (target == nullptr || source == nullptr) refuse(call, "an address that is not symmetric");
  const int fault = wrong(call);
  if (fault != 0 && fault != kHang && fault != kWrong) refuse(call, "planted");
  stream_of(call, stream).push([=] {
    while (fault == kHang) std::this_thread::sleep_for(kTurn);
    std::memmove(target, source, bytes);
    if (fault == kWrong) static_cast<std::byte*>(target)[bytes - 1] ^= std::byte{1};
  });
}

// --- collectives of a team ------------------------------------------------------------------------------------------

enum class Kind : std::uint8_t { kBarrier, kAlltoall, kFcollect, kBroadcast, kReduce, kReducescatter };

struct Collective {
  Kind kind = Kind::kBarrier;
  int team = 0;
  std::byte* target = nullptr;
  const std::byte* source = nullptr;
  std::size_t count = 0;  // of elements
  std::size_t element_bytes = 1;
  int root = 0;  // of the team
  linkgauge::Datatype datatype{};
  linkgauge::ReduceOp op{};
};

const std::vector<int>& members_of(const char* call, int team) {
  if (team < 0 || team >= kMostTeams || teams[static_cast<std::size_t>(team)].empty()) refuse(call, "no team");
  return teams[static_cast<std::size_t>(team)];
}

// Returns once every PE of the team has come so often as this one.
void meet_team(const char* call, const Collective& by) {
  auto& comings = meeting->teams[static_cast<std::size_t>(by.team)];
  const std::vector<int>& members = members_of(call, by.team);
  Coming& own = comings[static_cast<std::size_t>(own_pe)];
  const std::uint64_t times = own.times.load() + 1;
  const auto place_of = [](const void* place) {
    return place == nullptr ? 0 : static_cast<std::uint64_t>(static_cast<const std::byte*>(place) - heap) + 1;
  };
  const std::array<std::uint64_t, 3> places{place_of(by.target), place_of(by.source), by.count};
  own.places[times % 2] = places;
  own.times.store(times, std::memory_order_release);
  for (const int pe : members) {
    const Coming& other = comings[static_cast<std::size_t>(pe)];
    while (other.times.load(std::memory_order_acquire) < times) std::this_thread::sleep_for(kTurn);
    if (other.places[times % 2] != places) refuse(call, "places or counts that are not alike on all PEs of the team");
  }
}

std::size_t source_elements(const Collective& by, std::size_t pes_of_team) {
  return by.kind == Kind::kAlltoall || by.kind == Kind::kReducescatter ? by.count * pes_of_team : by.count;
}
std::size_t target_elements(const Collective& by, std::size_t pes_of_team) {
  return by.kind == Kind::kAlltoall || by.kind == Kind::kFcollect ? by.count * pes_of_team : by.count;
}

// What this PE receives.
std::vector<std::byte> received(const Collective& by, const std::vector<const std::byte*>& sources, std::size_t own) {
  const std::size_t block = by.count * by.element_bytes;
  std::vector<std::byte> result;
  const auto add = [&](const std::byte* data) { result.insert(result.end(), data, data + block); };
  switch (by.kind) {
    case Kind::kBarrier:
      break;
    case Kind::kAlltoall:
      for (const std::byte* source : sources) add(source + own * block);
      break;
    case Kind::kFcollect:
      for (const std::byte* source : sources) add(source);
      break;
    case Kind::kBroadcast:
      add(sources[static_cast<std::size_t>(by.root)]);
      break;
    case Kind::kReduce:
    case Kind::kReducescatter: {
      result.resize(block);
      std::vector<const void*> operands;
      for (const std::byte* source : sources)
        operands.push_back(source + (by.kind == Kind::kReducescatter ? own * block : 0));
      void* target = result.data();
      const void* from = operands.data();
      auto count = static_cast<std::int32_t>(operands.size());
      std::uint64_t length = by.count;
      auto datatype = static_cast<std::uint32_t>(by.datatype);
      auto op = static_cast<std::uint32_t>(by.op);
      void* arguments[] = {&target, &from, &count, &length, &datatype, &op};
      linkgauge::host_kernel(linkgauge::kKernelReduce).run(arguments, {1, 1, 0});
      break;
    }
  }
  return result;
}

void run_collective(const char* call, const Collective& by, int fault) {
  while (fault == kHang) std::this_thread::sleep_for(kTurn);
  const std::vector<int>& members = members_of(call, by.team);
  meet_team(call, by);
  if (by.kind == Kind::kBarrier) return;
  const std::size_t source_bytes = source_elements(by, members.size()) * by.element_bytes;
  std::vector<const std::byte*> sources;
  std::size_t own = 0;
  for (const int pe : members) {
    if (pe == own_pe) own = sources.size();
    sources.push_back(reach(by.source, source_bytes, pe));
  }
  const std::vector<std::byte> result = received(by, sources, own);
  meet_team(call, by);  // in place nothing is written that another still reads
  std::memcpy(by.target, result.data(), result.size());
  if (fault == kWrong) by.target[result.size() - 1] ^= std::byte{1};
}

// NVSHMEM's rules of what is given.
void check_collective(const char* call, const Collective& by) {
  if (takes_turns()) refuse(call, "not supported with limited MPG (Multiple Processes Per GPU) runs");
  const std::vector<int>& members = members_of(call, by.team);
  if (by.kind == Kind::kBarrier) return;
  const std::size_t source_bytes = source_elements(by, members.size()) * by.element_bytes;
  const std::size_t target_bytes = target_elements(by, members.size()) * by.element_bytes;
  if (reach(by.source, source_bytes, own_pe) == nullptr || reach(by.target, target_bytes, own_pe) == nullptr)
    refuse(call, "an address that is not symmetric");
  const bool apart = by.source + source_bytes <= by.target || by.target + target_bytes <= by.source;
  const bool in_place = by.source == by.target && (by.kind == Kind::kReduce || by.kind == Kind::kBroadcast);
  if (!apart && !in_place) refuse(call, "source and target overlap");
  const char* const scratch = std::getenv("NVSHMEM_REDUCE_SCRATCH_SIZE");
  const std::size_t room = scratch != nullptr ? std::strtoul(scratch, nullptr, 10) : std::size_t{1} << 19;
  if (by.kind == Kind::kReducescatter && source_bytes > room / 2)
    refuse(call, "Not enough space to perform reducescatter. Increase value of NVSHMEM_REDUCE_SCRATCH_SIZE");
}

int queue_collective(const char* call, const Collective& by, cudaStream_t stream) {
  check_collective(call, by);
  const int fault = wrong(call);
  if (fault != 0 && fault != kHang && fault != kWrong) return fault;
  stream_of(call, stream).push([=] { run_collective(call, by, fault); });
  return 0;
}

// --- what kernels linked with the device library do (core/kernels/linked) -------------------------------------------

constexpr char kPut[] = "lg_nvshmem_put";
constexpr char kPingpong[] = "lg_nvshmem_pingpong";

template <typename Value>
Value argument(void** arguments, int number) {
  Value value{};
  std::memcpy(&value, arguments[number], sizeof value);
  return value;
}

void put_with_signal(const char* kernel, std::byte* target, const std::byte* source, std::size_t bytes,
                     std::uint64_t* word, std::uint64_t value, int operation, int pe, int fault) {
  std::byte* const there = reach(target, bytes, pe);
  auto* const signal = reinterpret_cast<std::uint64_t*>(reach(word, sizeof *word, pe));
  if (there == nullptr || signal == nullptr) refuse(kernel, "an address that is not symmetric");
  std::memmove(there, source, bytes);
  if (fault == kWrong) there[bytes - 1] ^= std::byte{1};
  if (operation == NVSHMEM_SIGNAL_ADD) {
    std::atomic_ref(*signal).fetch_add(value, std::memory_order_release);
  } else {
    std::atomic_ref(*signal).store(value, std::memory_order_release);
  }
}

int fault_of(const char* kernel) {
  const int fault = wrong(kernel);
  if (fault != 0 && fault != kHang && fault != kWrong) refuse(kernel, "planted");
  while (fault == kHang) std::this_thread::sleep_for(kTurn);
  return fault;
}

// (target, source, bytes, part, messages, signal, pe, scope)
void run_put(void** arguments, unsigned, unsigned) {
  const int fault = fault_of(kPut);
  auto* const target = argument<std::byte*>(arguments, 0);
  const auto* const source = argument<const std::byte*>(arguments, 1);
  const auto bytes = argument<std::uint64_t>(arguments, 2);
  const auto part = argument<std::uint64_t>(arguments, 3);
  const auto messages = argument<std::uint64_t>(arguments, 4);
  auto* const signal = argument<std::uint64_t*>(arguments, 5);
  const auto pe = argument<std::int32_t>(arguments, 6);
  for (std::uint64_t message = 0; message < messages; ++message) {
    for (std::uint64_t offset = 0; offset < bytes; offset += part) {
      const std::uint64_t length = bytes - offset < part ? bytes - offset : part;
      put_with_signal(kPut, target + offset, source + offset, length, signal, 1, NVSHMEM_SIGNAL_ADD, pe, fault);
    }
  }
}

// (target, source, bytes, theirs, mine, first, rounds, starter, pe, scope, spin_limit, gave_up)
void run_pingpong(void** arguments, unsigned, unsigned) {
  const int fault = fault_of(kPingpong);
  auto* const mine = argument<std::uint64_t*>(arguments, 4);
  const auto first = argument<std::uint64_t>(arguments, 5);
  const auto rounds = argument<std::uint64_t>(arguments, 6);
  const bool starts = argument<std::int32_t>(arguments, 7) != 0;
  const bool plain = argument<std::int32_t>(arguments, 9) == 3;
  const auto put = [&](std::uint64_t round) {
    if (plain) {
      auto* const word = argument<std::uint64_t*>(arguments, 3);
      auto* const there = reach(word, sizeof *word, argument<std::int32_t>(arguments, 8));
      if (there == nullptr) refuse(kPingpong, "an address that is not symmetric");
      std::atomic_ref(*reinterpret_cast<std::uint64_t*>(there))
          .store(fault == kWrong ? round + 1 : round, std::memory_order_release);
      return;
    }
    put_with_signal(kPingpong, argument<std::byte*>(arguments, 0), argument<const std::byte*>(arguments, 1),
                    argument<std::uint64_t>(arguments, 2), argument<std::uint64_t*>(arguments, 3), round,
                    NVSHMEM_SIGNAL_SET, argument<std::int32_t>(arguments, 8), fault);
  };
  for (std::uint64_t round = first; round < first + rounds; ++round) {
    if (starts) put(round);
    // A core may have to be waited for: by time, not by looks.
    const auto until = std::chrono::steady_clock::now() + stand_in::kPatience;
    while (std::atomic_ref(*mine).load(std::memory_order_acquire) < round) {
      if (std::chrono::steady_clock::now() > until) {
        *argument<std::uint64_t*>(arguments, 11) = round;
        return;
      }
      std::this_thread::yield();
    }
    if (!starts) put(round);
  }
}

std::string kernel_name(Kind kind, linkgauge::Datatype datatype, linkgauge::ReduceOp op) {
  static constexpr std::array<const char*, 6> kNames{"barrier",   "alltoall", "fcollect",
                                                     "broadcast", "reduce",   "reducescatter"};
  std::string name = "lg_nvshmem_";
  if (kind == Kind::kReduce || kind == Kind::kReducescatter) {
    name += linkgauge::nvshmem::names_of(datatype).word;
    name += "_" + std::string(linkgauge::to_string(op)) + "_";
  }
  return name + kNames[static_cast<std::size_t>(kind)];
}

// (team, target, source, count, root, rounds)
template <Kind kKind, linkgauge::Datatype kDatatype, linkgauge::ReduceOp kOp>
void run_collective_kernel(void** arguments, unsigned, unsigned) {
  static const std::string name = kernel_name(kKind, kDatatype, kOp);
  const int fault = fault_of(name.c_str());
  Collective by{kKind, argument<std::int32_t>(arguments, 0), argument<std::byte*>(arguments, 1),
                argument<const std::byte*>(arguments, 2), argument<std::uint64_t>(arguments, 3)};
  if (kKind == Kind::kReduce || kKind == Kind::kReducescatter) by.element_bytes = linkgauge::size_of(kDatatype);
  by.root = argument<std::int32_t>(arguments, 4);
  by.datatype = kDatatype;
  by.op = kOp;
  check_collective(name.c_str(), by);
  const auto rounds = argument<std::uint64_t>(arguments, 5);
  for (std::uint64_t round = 0; round < rounds; ++round) run_collective(name.c_str(), by, fault);
}

// Has the stand-in driver run these, or run them no more.
int tell_driver(bool begins) {
  using linkgauge::Datatype;
  using linkgauge::ReduceOp;
  constexpr std::array<unsigned char, 8> kPutArguments{8, 8, 8, 8, 8, 8, 4, 4};
  constexpr std::array<unsigned char, 12> kPingpongArguments{8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 8, 8};
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return 1;
  auto* const extend =
      reinterpret_cast<void (*)(const char*, const unsigned char*, unsigned long,
                                void (*)(void**, unsigned, unsigned))>(dlsym(driver, "stand_in_extend"));
  dlclose(driver);
  if (extend == nullptr) return 1;
  const auto add = [&]<Kind kKind, Datatype kDatatype, ReduceOp kOp>() {
    constexpr std::array<unsigned char, 6> kArguments{4, 8, 8, 8, 4, 8};
    extend(kernel_name(kKind, kDatatype, kOp).c_str(), kArguments.data(), kArguments.size(),
           begins ? run_collective_kernel<kKind, kDatatype, kOp> : nullptr);
  };
  add.operator()<Kind::kBarrier, Datatype::kInt8, ReduceOp::kSum>();
  add.operator()<Kind::kAlltoall, Datatype::kInt8, ReduceOp::kSum>();
  add.operator()<Kind::kFcollect, Datatype::kInt8, ReduceOp::kSum>();
  add.operator()<Kind::kBroadcast, Datatype::kInt8, ReduceOp::kSum>();
#define ADD_OP(number, op)                                         \
  add.operator()<Kind::kReduce, Datatype::number, ReduceOp::op>(); \
  add.operator()<Kind::kReducescatter, Datatype::number, ReduceOp::op>();
#define ADD_DATATYPE(number, word, type) \
  ADD_OP(number, kSum) ADD_OP(number, kProd) ADD_OP(number, kMin) ADD_OP(number, kMax)
  LINKGAUGE_NVSHMEM_DATATYPES(ADD_DATATYPE)
  extend(kPut, kPutArguments.data(), kPutArguments.size(), begins ? run_put : nullptr);
  extend(kPingpong, kPingpongArguments.data(), kPingpongArguments.size(), begins ? run_pingpong : nullptr);
  return 0;
}

}  // namespace

#define STAND_IN(type, name) LINKGAUGE_STAND_IN_EXPORT type name

STAND_IN(void, nvshmemx_vendor_get_version_info)(int* major, int* minor, int* patch) {
  const char* text = std::getenv("LINKGAUGE_STAND_IN_NVSHMEM_VERSION");
  std::string versions = text != nullptr ? text : "3.8.0";
  const char* rank = std::getenv("PMI_RANK");  // the launcher's, since no PE has a number before it has begun
  for (int skip = rank != nullptr ? std::atoi(rank) : 0; skip > 0 && versions.find(',') != std::string::npos; --skip) {
    versions.erase(0, versions.find(',') + 1);
  }
  (void)std::sscanf(versions.c_str(), "%d.%d.%d", major, minor, patch);
}
STAND_IN(int, nvshmemx_get_uniqueid)(nvshmemx_uniqueid_t* id) {
  if (const int code = wrong("nvshmemx_get_uniqueid"); code != 0) return code;
  const char* folder = std::getenv("TMPDIR");
  (void)std::snprintf(id->internal, sizeof id->internal, "%s/stand-in-XXXXXX", folder != nullptr ? folder : "/tmp");
  const int file = mkstemp(id->internal);
  if (file < 0) return 1;
  const int status = ftruncate(file, sizeof(Meeting));
  close(file);
  return status == 0 ? 0 : 1;
}
STAND_IN(int, nvshmemx_set_attr_uniqueid_args)
(const int rank, const int ranks, const nvshmemx_uniqueid_t* id, nvshmemx_init_attr_t* attributes) {
  attributes->args.uid_args.id = const_cast<nvshmemx_uniqueid_t*>(id);
  attributes->args.uid_args.myrank = rank;
  attributes->args.uid_args.nranks = ranks;
  return 0;
}
STAND_IN(int, nvshmemx_hostlib_init_attr)(unsigned flags, nvshmemx_init_attr_t* attributes) {
  constexpr int kFirst = (1 << 16) + static_cast<int>(sizeof(nvshmemx_init_attr_t));
  if (flags != NVSHMEMX_INIT_WITH_UNIQUEID || attributes->version != kFirst || meeting != nullptr) return 1;
  own_pe = attributes->args.uid_args.myrank;
  pes = attributes->args.uid_args.nranks;
  if (pes > kMostPes) return 1;
  if (const int code = wrong("nvshmemx_hostlib_init_attr"); code != 0) {
    while (code == kHang) std::this_thread::sleep_for(kTurn);
    return code;
  }
  const char* const path = attributes->args.uid_args.id->internal;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return 1;
  void* const memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return 1;
  meeting = static_cast<Meeting*>(memory);
  if (!meeting->gate.meet(pes)) return 1;
  for (int pe = 0; pe < pes; ++pe) teams[NVSHMEM_TEAM_WORLD].push_back(pe);
  numbers_taken |= 1U << NVSHMEM_TEAM_WORLD;
  if (own_pe == 0) unlink(path);
  return 0;
}
STAND_IN(int, nvshmemx_init_status)() {
  return takes_turns() ? NVSHMEM_STATUS_LIMITED_MPG : NVSHMEM_STATUS_IS_INITIALIZED;
}
STAND_IN(void, nvshmemx_hostlib_finalize)() {
  meet_or_refuse("nvshmemx_hostlib_finalize");
  munmap(meeting, sizeof(Meeting));
  meeting = nullptr;
  for (std::vector<int>& team : teams) team.clear();
  numbers_taken = 0;
}
STAND_IN(int, nvshmemx_cumodule_init)(CUmodule module) {
  if (const int code = wrong("nvshmemx_cumodule_init"); code != 0) return code;
  return module == nullptr || meeting == nullptr ? 1 : tell_driver(true);
}
STAND_IN(int, nvshmemx_cumodule_finalize)(CUmodule module) { return module == nullptr ? 1 : tell_driver(false); }
STAND_IN(void*, nvshmem_malloc)(std::size_t bytes) {
  if (wrong("nvshmem_malloc") != 0) return nullptr;
  if (heap != nullptr) refuse("nvshmem_malloc", "this stand-in gives one piece of memory at a time");
  heap = static_cast<std::byte*>(Machine::instance().allocate(stand_in::Kind::kDevice, 0, bytes));
  if (heap == nullptr) return nullptr;
  const auto place = static_cast<std::size_t>(own_pe);
  meeting->bytes[place] = bytes;
  if (!Machine::instance().share(heap, &meeting->heaps[place])) refuse("nvshmem_malloc", "memory that is not shared");
  meet_or_refuse("nvshmem_malloc");
  for (int pe = 0; pe < pes; ++pe) {
    if (meeting->bytes[static_cast<std::size_t>(pe)] != bytes) refuse("nvshmem_malloc", "PEs asked for unlike sizes");
  }
  meet_or_refuse("nvshmem_malloc");
  return heap;
}
STAND_IN(void, nvshmem_free)(void* memory) {
  if (memory == nullptr || memory != heap) refuse("nvshmem_free", "memory that it did not give");
  meet_or_refuse("nvshmem_free");
  for (const auto& [pe, place] : opened) (void)Machine::instance().release(place, stand_in::Kind::kOpened);
  opened.clear();
  (void)Machine::instance().release(heap, stand_in::Kind::kDevice);
  heap = nullptr;
}
STAND_IN(void*, nvshmem_ptr)(const void* place, int pe) {
  return std::getenv("LINKGAUGE_STAND_IN_NVSHMEM_FAR") != nullptr ? nullptr : reach(place, 1, pe);
}
STAND_IN(void, nvshmemx_putmem_on_stream)
(void* target, const void* source, std::size_t bytes, int pe, cudaStream_t stream) {
  queue_copy("nvshmemx_putmem_on_stream", reach(target, bytes, pe), source, bytes, stream);
}
STAND_IN(void, nvshmemx_getmem_on_stream)
(void* target, const void* source, std::size_t bytes, int pe, cudaStream_t stream) {
  queue_copy("nvshmemx_getmem_on_stream", target, reach(source, bytes, pe), bytes, stream);
}
STAND_IN(void, nvshmemx_putmem_signal_on_stream)
(void* target, const void* source, std::size_t bytes, std::uint64_t* word, std::uint64_t value, int operation, int pe,
 cudaStream_t stream) {
  constexpr const char* kCall = "nvshmemx_putmem_signal_on_stream";
  queue_copy(kCall, reach(target, bytes, pe), source, bytes, stream);
  queue_signal(kCall, word, value, operation, pe, stream);
}
STAND_IN(void, nvshmemx_signal_op_on_stream)
(std::uint64_t* word, std::uint64_t value, int operation, int pe, cudaStream_t stream) {
  queue_signal("nvshmemx_signal_op_on_stream", word, value, operation, pe, stream);
}
STAND_IN(void, nvshmemx_signal_wait_until_on_stream)
(std::uint64_t* word, int comparison, std::uint64_t value, cudaStream_t stream) {
  constexpr const char* kCall = "nvshmemx_signal_wait_until_on_stream";
  if (takes_turns()) refuse(kCall, "not supported with limited MPG (Multiple Processes Per GPU) runs");
  if (reach(word, sizeof *word, own_pe) == nullptr) refuse(kCall, "a signal that is not symmetric");
  if (comparison != NVSHMEM_CMP_GE) refuse(kCall, "this stand-in waits for at least a value");
  stream_of(kCall, stream).push([=] {
    while (std::atomic_ref(*word).load(std::memory_order_acquire) < value) std::this_thread::sleep_for(kTurn);
  });
}
STAND_IN(void, nvshmemx_quiet_on_stream)(cudaStream_t stream) {
  (void)stream_of("nvshmemx_quiet_on_stream", stream);
  if (wrong("nvshmemx_quiet_on_stream") != 0) refuse("nvshmemx_quiet_on_stream", "planted");
}
STAND_IN(int, nvshmem_team_split_strided)
(nvshmem_team_t parent, int first, int stride, int size, const nvshmem_team_config_t*, long, nvshmem_team_t* team) {
  constexpr const char* kCall = "nvshmem_team_split_strided";
  *team = NVSHMEM_TEAM_INVALID;
  const int code = wrong(kCall);
  if (parent != NVSHMEM_TEAM_WORLD || first < 0 || stride < 1 || size < 1 || first + stride * (size - 1) >= pes)
    return 2;
  meeting->said[static_cast<std::size_t>(own_pe)] = {code, numbers_taken};
  meet_or_refuse(kCall);
  std::vector<int> members;
  for (int place = 0; place < size; ++place) members.push_back(first + place * stride);
  std::uint32_t taken = 0;
  int refused = 0;
  for (int pe = 0; pe < pes; ++pe) {
    const Meeting::Said& said = meeting->said[static_cast<std::size_t>(pe)];
    if (said.refused != 0) refused = said.refused;
    if (std::find(members.begin(), members.end(), pe) != members.end()) taken |= said.taken;
  }
  const int number = std::countr_one(taken);
  const bool member = std::find(members.begin(), members.end(), own_pe) != members.end();
  if (number < kMostTeams && member)
    meeting->teams[static_cast<std::size_t>(number)][static_cast<std::size_t>(own_pe)].times = 0;
  meet_or_refuse(kCall);
  if (refused != 0) return refused;
  if (number >= kMostTeams) return 1;
  if (!member) return 0;
  numbers_taken |= 1U << number;
  teams[static_cast<std::size_t>(number)] = members;
  *team = number;
  return 0;
}
STAND_IN(void, nvshmem_team_destroy)(nvshmem_team_t team) {
  if (team == NVSHMEM_TEAM_INVALID) return;
  (void)members_of("nvshmem_team_destroy", team);
  teams[static_cast<std::size_t>(team)].clear();
  numbers_taken &= ~(1U << team);
}
STAND_IN(int, nvshmemx_barrier_on_stream)(nvshmem_team_t team, cudaStream_t stream) {
  return queue_collective("nvshmemx_barrier_on_stream", {Kind::kBarrier, team}, stream);
}
#define MOVING(name, kind)                                                                                           \
  STAND_IN(int, name)                                                                                                \
  (nvshmem_team_t team, void* target, const void* source, std::size_t bytes, cudaStream_t stream) {                  \
    return queue_collective(                                                                                         \
        #name, {kind, team, static_cast<std::byte*>(target), static_cast<const std::byte*>(source), bytes}, stream); \
  }
MOVING(nvshmemx_alltoallmem_on_stream, Kind::kAlltoall)
MOVING(nvshmemx_fcollectmem_on_stream, Kind::kFcollect)
STAND_IN(int, nvshmemx_broadcastmem_on_stream)
(nvshmem_team_t team, void* target, const void* source, std::size_t bytes, int root, cudaStream_t stream) {
  const Collective by{
      Kind::kBroadcast, team, static_cast<std::byte*>(target), static_cast<const std::byte*>(source), bytes, 1, root};
  return queue_collective("nvshmemx_broadcastmem_on_stream", by, stream);
}
#define REDUCTION(number, word, type, op, kind, letter, name)                                        \
  STAND_IN(int, nvshmemx_##word##_##op##_##name##_on_stream)                                         \
  (nvshmem_team_t team, type * target, const type* source, std::size_t count, cudaStream_t stream) { \
    const Collective by{kind,                                                                        \
                        team,                                                                        \
                        reinterpret_cast<std::byte*>(target),                                        \
                        reinterpret_cast<const std::byte*>(source),                                  \
                        count,                                                                       \
                        sizeof(type),                                                                \
                        0,                                                                           \
                        linkgauge::Datatype::number,                                                 \
                        linkgauge::ReduceOp::letter};                                                \
    return queue_collective("nvshmemx_" #word "_" #op "_" #name "_on_stream", by, stream);           \
  }
#define REDUCTIONS(number, word, type)                                            \
  REDUCTION(number, word, type, sum, Kind::kReduce, kSum, reduce)                 \
  REDUCTION(number, word, type, prod, Kind::kReduce, kProd, reduce)               \
  REDUCTION(number, word, type, min, Kind::kReduce, kMin, reduce)                 \
  REDUCTION(number, word, type, max, Kind::kReduce, kMax, reduce)                 \
  REDUCTION(number, word, type, sum, Kind::kReducescatter, kSum, reducescatter)   \
  REDUCTION(number, word, type, prod, Kind::kReducescatter, kProd, reducescatter) \
  REDUCTION(number, word, type, min, Kind::kReducescatter, kMin, reducescatter)   \
  REDUCTION(number, word, type, max, Kind::kReducescatter, kMax, reducescatter)
LINKGAUGE_NVSHMEM_DATATYPES(REDUCTIONS)
