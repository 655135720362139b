// A pretended machine behind the stand-ins for vendors' GPU libraries: device memory is host memory, streams are
// threads, kernels are the host's. It says which calls fail, and when, so that every fault can be had on demand.
//
// Settings are one text, from LINKGAUGE_STAND_IN or stand_in_configure(): "devices=2;memory=1048576;peer=0;
// managed=1;concurrent=0;fail=cuMemAlloc_v2:3:2;break=lg_copy:17" - the third call of cuMemAlloc_v2 returns 2, the 17th
// launch of lg_copy leaves its last byte wrong. "break_after_fills=2": the first copy by a kernel after the second
// launch of lg_fill does; a case fills before its first operation and before its last one, so that only the last is
// wrong.
// A stream that is destroyed before its work is done is counted as a call of "stream_destroyed_at_work".
// A fill or copy of an address that can be nobody's loses the process its devices, as CUDA's do: every later call fails
// with 700, an illegal address; with "abort_when_lost=1" it ends the process by SIGABRT, as HIP's runtime does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace stand_in {

struct Settings {
  int devices = 2;
  int driver = 13000;
  int architecture = 90;               // sm_90; HIP stand-in: gfx number in `gfx`
  unsigned shared_bytes = 227U << 10;  // that a block may have
  std::string gfx = "gfx90a";
  std::size_t memory_bytes = std::size_t{1} << 30;  // each device
  bool peer = true;
  bool managed = true;     // there is managed memory
  int pageable = 1;        // 0: kernels cannot reach it; 1: its pages move to them; 2: by the host's page tables
  bool fabric = true;      // memory may have handles of the fabric
  bool concurrent = true;  // pages move one by one, prefetch and advice are taken
  bool abort_when_lost = false;
  std::string compiler = "12.9";  // of the run-time compiler
};

// A queue of work in order, on a thread of its own.
class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  void push(std::function<void()> work);
  void synchronize();
  bool idle();
  int device() const { return device_; }
  // From begin_capture to end_capture what is pushed is kept instead; false, or nothing, where it is not that state.
  // A stream that waits for an event of a capture is in it until that ends; all is kept in the order of the calls.
  bool begin_capture();
  std::unique_ptr<std::vector<std::function<void()>>> end_capture();
  using Capture = std::vector<std::function<void()>>;
  std::shared_ptr<Capture> capture();
  void join(std::shared_ptr<Capture> capture);

 private:
  void run();
  int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool stop_ = false;
  std::shared_ptr<Capture> captured_;  // not nullptr: a capture of its own is under way
  std::weak_ptr<Capture> joined_;      // one that it is in
  std::thread thread_;
};

// Queued work may outlive the event's owner, as with the vendors'.
struct Event : std::enable_shared_from_this<Event> {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;   // how often it was recorded
  std::uint64_t completed = 0;  // of them, how many were reached
  std::int64_t when_ns = 0;
  std::weak_ptr<Stream::Capture> captured;  // it was recorded in one
};

struct Kernel {
  std::string name;
};

enum class Kind : std::uint8_t { kDevice, kPinned, kManaged, kRegistered, kOpened };

struct Allocation {
  Kind kind;
  int device;
  std::size_t bytes;
  int fd;  // device memory: what another process opens
};

// What a shared handle holds; fits the vendors' 64 bytes.
struct Handle {
  std::uint64_t magic;
  std::int64_t process;
  std::int64_t fd;
  std::uint64_t bytes;
};

// Memory apart from its addresses, as cuMemCreate gives it. It goes when none holds it and it is mapped nowhere.
struct Physical {
  int device = -1;
  std::size_t bytes = 0;
  int fd = -1;
  int holds = 0;
};
constexpr std::size_t kPieceBytes = std::size_t{2} << 20;

class Machine {
 public:
  static Machine& instance();
  void configure(const char* text);
  const Settings& settings() const { return settings_; }

  // What the call must return instead of doing its work; 0: nothing. Counts the call.
  int fault(const char* call);
  int lost() const { return lost_; }  // the same of a device that was lost while it was waited for; 0: it was not
  int calls(const char* call);
  int live();  // allocations, streams, events and modules that were not given back

  void* allocate(Kind kind, int device, std::size_t bytes);  // nullptr: out of memory
  bool release(void* memory, Kind kind);
  bool register_host(void* memory, std::size_t bytes);
  bool is_managed(const void* memory, std::size_t bytes);  // all of it, in one allocation
  std::size_t free_bytes(int device);
  bool find(const void* memory, void** base, Allocation* allocation);
  bool share(void* base, Handle* handle);
  void* open(const Handle& handle, int device);  // nullptr: refused, also to the process that owns it

  // Memory and addresses apart; 0, nullptr or false where it cannot be.
  std::uint64_t make_physical(int device, std::size_t bytes);
  bool hold(std::uint64_t number, int change);
  bool shown(std::uint64_t number, Handle* handle);
  std::uint64_t open_physical(const Handle& handle);
  void* reserve(std::size_t bytes);
  bool unreserve(void* place, std::size_t bytes);
  bool map(void* place, std::size_t bytes, std::uint64_t number);
  bool unmap(void* place, std::size_t bytes);
  bool let_reach(void* place, std::size_t bytes);
  std::uint64_t mapped_at(const void* place);

  void count_graph(int change) { graphs_ += change; }
  Stream* create_stream(int device);
  bool destroy_stream(Stream* stream);
  Event* create_event();
  bool destroy_event(Event* event);
  void record(Event* event, Stream* stream);
  void wait(Stream* stream, Event* event);
  bool synchronize_event(Event* event);
  bool completed(Event* event);

  // A module is made of an image that the stand-in compiler gave; nullptr otherwise.
  // An image that says that it was linked has the kernels of the library that it was linked with too.
  void* load_module(const void* image, const std::string& architecture);
  bool unload_module(void* module);
  Kernel* find_kernel(void* module, const char* name);  // nullptr: there is no such kernel
  // What such kernels do, while that library has begun in their module. Plain C types, since another library tells it.
  using Run = void (*)(void** arguments, unsigned blocks, unsigned threads);
  void extend(const char* name, const std::uint8_t* argument_bytes, std::size_t count, Run run);
  bool launch(Kernel* kernel, unsigned blocks, unsigned threads, unsigned shared_bytes, Stream* stream,
              void** arguments);

 private:
  struct Fault {
    std::string call;
    int nth;
    int code;
  };
  std::mutex mutex_;
  Settings settings_;
  std::vector<Fault> faults_;
  std::vector<Fault> breaks_;
  int break_after_ = 0;
  std::map<std::string, int> calls_;
  struct Reserved {
    std::size_t bytes = 0;
    std::uint64_t mapped = 0;  // 0: nothing
  };
  std::map<const void*, Allocation> allocations_;
  std::map<std::uint64_t, Physical> physical_;
  std::map<const void*, Reserved> reserved_;
  std::uint64_t last_physical_ = 0;
  std::map<std::string, Kernel> kernels_;
  struct Extension {
    std::vector<std::uint8_t> argument_bytes;
    Run run = nullptr;
  };
  std::map<std::string, Extension> extensions_;
  std::atomic<int> streams_{0};
  std::atomic<int> graphs_{0};
  std::map<Event*, std::shared_ptr<Event>> events_;
  std::atomic<int> modules_{0};
  std::atomic<int> lost_{0};
};

// A kernel of this name is of another library's device code.
inline bool is_linked(const std::string& name) {
  return name.rfind("lg_nvshmem_", 0) == 0 || name.rfind("lg_lsa_", 0) == 0;
}
inline constexpr char kLinkedMark[] = "linked with ";

// What the stand-in compilers give and load_module takes.
std::string image_for(const std::string& architecture);

}  // namespace stand_in

#define LINKGAUGE_STAND_IN_EXPORT extern "C" __attribute__((visibility("default")))

// The tests' handle on the machine, exported by each stand-in that has one.
LINKGAUGE_STAND_IN_EXPORT void stand_in_configure(const char* text);
LINKGAUGE_STAND_IN_EXPORT int stand_in_calls(const char* call);
LINKGAUGE_STAND_IN_EXPORT int stand_in_live();
// Other stand-ins' door to it: Machine::extend, without a `run` to take the kernel away.
LINKGAUGE_STAND_IN_EXPORT void stand_in_extend(const char* name, const unsigned char* argument_bytes,
                                               unsigned long count, void (*run)(void**, unsigned, unsigned));
