#include "machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "base/errors.h"
#include "device/host_kernels.h"
#include "kernels/kernels.h"

namespace stand_in {
namespace {

constexpr std::uint64_t kHandleMagic = 0x6c67207374616e64ULL;
constexpr std::uint64_t kFirstAddress = 4096;
constexpr int kIllegalAddress = 700;  // CUDA's number and HIP's
constexpr char kImageMark[] = "stand-in image for ";

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void* map_file(int fd, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// The GPU-only copies do what the host's copy does.
std::string host_name(const std::string& name) {
  if (name == linkgauge::kKernelBothWaysRepeated) return name;  // which the host has too
  for (const char* family : {linkgauge::kKernelCopy, linkgauge::kKernelBothWays}) {
    if (name.rfind(family, 0) == 0) return family;
  }
  return name;
}

}  // namespace

std::string image_for(const std::string& architecture) { return kImageMark + architecture + "\n"; }

Stream::Stream(int device) : device_(device), thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (const std::shared_ptr<Capture> capture = captured_ ? captured_ : joined_.lock()) {
    capture->push_back(std::move(work));
    return;
  }
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

bool Stream::begin_capture() {
  const std::lock_guard lock(mutex_);
  if (captured_) return false;
  captured_ = std::make_shared<Capture>();
  return true;
}

std::unique_ptr<std::vector<std::function<void()>>> Stream::end_capture() {
  const std::lock_guard lock(mutex_);
  if (!captured_) return nullptr;
  auto kept = std::make_unique<Capture>(std::move(*captured_));
  captured_.reset();
  return kept;
}

std::shared_ptr<Stream::Capture> Stream::capture() {
  const std::lock_guard lock(mutex_);
  return captured_ ? captured_ : joined_.lock();
}

void Stream::join(std::shared_ptr<Capture> capture) {
  const std::lock_guard lock(mutex_);
  if (captured_ != capture) joined_ = capture;
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

bool Stream::idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

Machine& Machine::instance() {
  static Machine* machine = [] {  // never destroyed: the library outlives what uses it
    auto* made = new Machine;
    const char* text = std::getenv("LINKGAUGE_STAND_IN");
    made->configure(text != nullptr ? text : "");
    return made;
  }();
  return *machine;
}

void Machine::configure(const char* text) {
  const std::lock_guard lock(mutex_);
  settings_ = Settings{};
  faults_.clear();
  breaks_.clear();
  lost_ = 0;
  break_after_ = 0;
  calls_.clear();
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ';')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = part.substr(0, equals);
    const std::string value = part.substr(equals + 1);
    if (key == "devices") settings_.devices = std::atoi(value.c_str());
    if (key == "driver") settings_.driver = std::atoi(value.c_str());
    if (key == "sm") settings_.architecture = std::atoi(value.c_str());
    if (key == "gfx") settings_.gfx = value;
    if (key == "shared") settings_.shared_bytes = static_cast<unsigned>(std::atoi(value.c_str()));
    if (key == "memory") settings_.memory_bytes = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "peer") settings_.peer = value != "0";
    if (key == "managed") settings_.managed = value != "0";
    if (key == "pageable") settings_.pageable = std::atoi(value.c_str());
    if (key == "fabric") settings_.fabric = value != "0";
    if (key == "concurrent") settings_.concurrent = value != "0";
    if (key == "abort_when_lost") settings_.abort_when_lost = value != "0";
    if (key == "compiler") settings_.compiler = value;
    if (key == "break_after_fills") break_after_ = std::atoi(value.c_str());
    if (key == "fail" || key == "break") {
      Fault fault{value.substr(0, value.find(':')), 1, 1};
      std::sscanf(value.c_str() + fault.call.size(), ":%d:%d", &fault.nth, &fault.code);
      (key == "fail" ? faults_ : breaks_).push_back(fault);
    }
  }
}

int Machine::fault(const char* call) {
  const std::lock_guard lock(mutex_);
  const int number = ++calls_[call];
  if (lost_ != 0) return lost_;
  for (const Fault& fault : faults_) {
    if (fault.call == call && fault.nth == number) return fault.code;
  }
  return 0;
}

int Machine::calls(const char* call) {
  const std::lock_guard lock(mutex_);
  return calls_[call];
}

int Machine::live() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(allocations_.size() + physical_.size() + reserved_.size()) + graphs_ + streams_ +
         static_cast<int>(events_.size()) + modules_;
}

std::size_t Machine::free_bytes(int device) {
  const std::lock_guard lock(mutex_);
  std::size_t used = 0;
  for (const auto& [memory, allocation] : allocations_) {
    if (allocation.device == device && (allocation.kind == Kind::kDevice || allocation.kind == Kind::kManaged))
      used += allocation.bytes;
  }
  for (const auto& [number, memory] : physical_) {
    if (memory.device == device) used += memory.bytes;
  }
  return used < settings_.memory_bytes ? settings_.memory_bytes - used : 0;
}

void* Machine::allocate(Kind kind, int device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (kind == Kind::kDevice && bytes > free_bytes(device)) return nullptr;
  const int fd = memfd_create("stand_in", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? map_file(fd, bytes) : nullptr;
  if (memory == nullptr) {
    close(fd);
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  allocations_[memory] = {kind, device, bytes, fd};
  return memory;
}

bool Machine::release(void* memory, Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(memory);
  if (found == allocations_.end()) return false;
  const Kind held = found->second.kind;
  const bool both_device = kind == Kind::kDevice && held == Kind::kManaged;
  if (held != kind && !both_device) return false;
  if (held != Kind::kRegistered) munmap(memory, found->second.bytes);
  if (found->second.fd >= 0) close(found->second.fd);
  allocations_.erase(found);
  return true;
}

bool Machine::register_host(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return allocations_.emplace(memory, Allocation{Kind::kRegistered, -1, bytes, -1}).second;
}

bool Machine::find(const void* memory, void** base, Allocation* allocation) {
  const std::lock_guard lock(mutex_);
  auto after = allocations_.upper_bound(memory);
  if (after == allocations_.begin()) return false;
  --after;
  const auto offset =
      static_cast<std::size_t>(static_cast<const char*>(memory) - static_cast<const char*>(after->first));
  if (offset >= after->second.bytes) return false;
  *base = const_cast<void*>(after->first);
  *allocation = after->second;
  return true;
}

bool Machine::is_managed(const void* memory, std::size_t bytes) {
  void* base = nullptr;
  Allocation allocation{};
  if (!find(memory, &base, &allocation) || allocation.kind != Kind::kManaged) return false;
  return static_cast<const char*>(memory) + bytes <= static_cast<const char*>(base) + allocation.bytes;
}

bool Machine::share(void* base, Handle* handle) {
  void* found = nullptr;
  Allocation allocation{};
  if (!find(base, &found, &allocation) || found != base || allocation.kind != Kind::kDevice) return false;
  *handle = {kHandleMagic, getpid(), allocation.fd, allocation.bytes};
  return true;
}

void* Machine::open(const Handle& handle, int device) {
  if (handle.magic != kHandleMagic || handle.process == getpid()) return nullptr;
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = map_file(fd, handle.bytes);
  close(fd);
  if (memory == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  allocations_[memory] = {Kind::kOpened, device, handle.bytes, -1};
  return memory;
}

std::uint64_t Machine::make_physical(int device, std::size_t bytes) {
  if (bytes == 0 || bytes % kPieceBytes != 0 || bytes > free_bytes(device)) return 0;
  const int fd = memfd_create("stand_in", MFD_CLOEXEC);
  if (fd < 0) return 0;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    close(fd);
    return 0;
  }
  const std::lock_guard lock(mutex_);
  physical_[++last_physical_] = {device, bytes, fd, 1};
  return last_physical_;
}

bool Machine::hold(std::uint64_t number, int change) {
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(number);
  if (found == physical_.end()) return false;
  found->second.holds += change;
  if (found->second.holds > 0) return true;
  close(found->second.fd);
  physical_.erase(found);
  return true;
}

bool Machine::shown(std::uint64_t number, Handle* handle) {
  const std::lock_guard lock(mutex_);
  const auto found = physical_.find(number);
  if (found == physical_.end()) return false;
  *handle = {kHandleMagic, getpid(), found->second.fd, found->second.bytes};
  return true;
}

std::uint64_t Machine::open_physical(const Handle& handle) {
  if (handle.magic != kHandleMagic) return 0;
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return 0;
  const std::lock_guard lock(mutex_);
  physical_[++last_physical_] = {-1, handle.bytes, fd, 1};
  return last_physical_;
}

void* Machine::reserve(std::size_t bytes) {
  if (bytes == 0 || bytes % kPieceBytes != 0) return nullptr;
  void* place = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  const std::lock_guard lock(mutex_);
  reserved_[place] = {bytes, 0};
  return place;
}

bool Machine::unreserve(void* place, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(place);
  if (found == reserved_.end() || found->second.bytes != bytes || found->second.mapped != 0) return false;
  munmap(place, bytes);
  reserved_.erase(found);
  return true;
}

// Nobody reaches it before let_reach.
bool Machine::map(void* place, std::size_t bytes, std::uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = reserved_.find(place);
    const auto memory = physical_.find(number);
    if (found == reserved_.end() || found->second.bytes != bytes || found->second.mapped != 0) return false;
    if (memory == physical_.end() || memory->second.bytes != bytes) return false;
    if (mmap(place, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->second.fd, 0) == MAP_FAILED) return false;
    found->second.mapped = number;
  }
  return hold(number, 1);
}

bool Machine::unmap(void* place, std::size_t bytes) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = reserved_.find(place);
    if (found == reserved_.end() || found->second.bytes != bytes || found->second.mapped == 0) return false;
    number = found->second.mapped;
    found->second.mapped = 0;
    (void)mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  return hold(number, -1);
}

bool Machine::let_reach(void* place, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(place);
  if (found == reserved_.end() || found->second.bytes != bytes || found->second.mapped == 0) return false;
  return mprotect(place, bytes, PROT_READ | PROT_WRITE) == 0;
}

std::uint64_t Machine::mapped_at(const void* place) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(place);
  return found == reserved_.end() ? 0 : found->second.mapped;
}

Stream* Machine::create_stream(int device) {
  ++streams_;
  return new Stream(device);
}

bool Machine::destroy_stream(Stream* stream) {
  if (stream == nullptr) return false;
  if (!stream->idle()) (void)fault("stream_destroyed_at_work");
  delete stream;
  --streams_;
  return true;
}

Event* Machine::create_event() {
  const auto event = std::make_shared<Event>();
  const std::lock_guard lock(mutex_);
  events_[event.get()] = event;
  return event.get();
}

bool Machine::destroy_event(Event* event) {
  const std::lock_guard lock(mutex_);
  return events_.erase(event) > 0;
}

void Machine::record(Event* event, Stream* stream) {
  std::uint64_t number = 0;
  const std::shared_ptr<Stream::Capture> capture = stream->capture();
  {
    const std::lock_guard lock(event->mutex);
    event->captured = capture;
    if (capture) return;
    number = ++event->recorded;
  }
  stream->push([event = event->shared_from_this(), number] {
    const std::lock_guard lock(event->mutex);
    event->completed = number;
    event->when_ns = now_ns();
    event->changed.notify_all();
  });
}

void Machine::wait(Stream* stream, Event* event) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(event->mutex);
    if (std::shared_ptr<Stream::Capture> capture = event->captured.lock()) return stream->join(std::move(capture));
    number = event->recorded;
  }
  stream->push([event = event->shared_from_this(), number] {
    std::unique_lock lock(event->mutex);
    event->changed.wait(lock, [&] { return event->completed >= number; });
  });
}

bool Machine::synchronize_event(Event* event) {
  std::unique_lock lock(event->mutex);
  event->changed.wait(lock, [&] { return event->completed >= event->recorded; });
  return true;
}

bool Machine::completed(Event* event) {
  const std::lock_guard lock(event->mutex);
  return event->recorded > 0 && event->completed == event->recorded;
}

// Code of that architecture, or PTX of no newer one, of a GPU.
void* Machine::load_module(const void* image, const std::string& architecture) {
  const std::string text(static_cast<const char*>(image));
  const std::string ptx = image_for("compute_").substr(0, image_for("compute_").size() - 1);
  const bool older = text.rfind(ptx, 0) == 0 && architecture.rfind("sm_", 0) == 0 &&
                     std::atoi(text.c_str() + ptx.size()) <= std::atoi(architecture.c_str() + 3);
  if (!older && text.rfind(image_for(architecture), 0) != 0) return nullptr;
  ++modules_;
  return new std::string(text);
}

bool Machine::unload_module(void* module) {
  if (module == nullptr) return false;
  delete static_cast<std::string*>(module);
  --modules_;
  return true;
}

Kernel* Machine::find_kernel(void* module, const char* name) {
  if (module == nullptr) return nullptr;
  if (is_linked(name)) {
    if (static_cast<std::string*>(module)->find(kLinkedMark) == std::string::npos) return nullptr;
  } else {
    try {
      (void)linkgauge::host_kernel(host_name(name));
    } catch (const linkgauge::Error&) {
      return nullptr;
    }
  }
  const std::lock_guard lock(mutex_);
  return &kernels_.emplace(name, Kernel{name}).first->second;
}

bool Machine::launch(Kernel* kernel, unsigned blocks, unsigned threads, unsigned shared_bytes, Stream* stream,
                     void** arguments) {
  constexpr std::size_t kMost = 16;
  constexpr std::size_t kMostWords = 48;  // of all parameters, each of which begins a word
  linkgauge::HostKernel host;
  Run extension = nullptr;
  if (is_linked(kernel->name)) {
    const std::lock_guard lock(mutex_);
    const Extension& known = extensions_[kernel->name];
    extension = known.run;
    host.argument_bytes = known.argument_bytes;
    if (extension == nullptr) return false;  // the library has not begun in the module
  } else {
    host = linkgauge::host_kernel(host_name(kernel->name));
  }
  if (host.argument_bytes.size() > kMost || blocks == 0 || threads == 0 || threads > 1024) return false;
  if (shared_bytes > settings_.shared_bytes) return false;
  auto held = std::make_shared<std::array<std::uint64_t, kMostWords>>();
  std::array<void*, kMost> pointers{};
  std::size_t word = 0;
  for (std::size_t i = 0; i < host.argument_bytes.size(); ++i) {
    const std::size_t words = (host.argument_bytes[i] + 7U) / 8;
    if (word + words > kMostWords) return false;
    pointers[i] = &(*held)[word];
    std::memcpy(pointers[i], arguments[i], host.argument_bytes[i]);
    word += words;
  }
  // A GPU's look takes about a microsecond, a core's some nanoseconds: a kernel would give up before what it waits for
  // has had the core that both share.
  constexpr std::uint64_t kLooksPerMicrosecond = 256;
  if (kernel->name == linkgauge::kKernelGate) (*held)[2] *= kLooksPerMicrosecond;  // (open, turn, looks, gave up)
  // (mine, theirs, first, rounds, starter, looks, gave up)
  if (kernel->name == linkgauge::kKernelFlagPingpong) (*held)[5] *= kLooksPerMicrosecond;
  bool broken = false;
  {
    const std::lock_guard lock(mutex_);
    const int number = ++calls_[kernel->name];
    for (const Fault& fault : breaks_) broken = broken || (fault.call == kernel->name && fault.nth == number);
    const auto fills = calls_.find(linkgauge::kKernelFill);
    const bool copies = kernel->name.rfind(linkgauge::kKernelCopy, 0) == 0;
    if (copies && break_after_ > 0 && fills != calls_.end() && fills->second == break_after_) {
      broken = true;
      break_after_ = 0;
    }
  }
  const bool writes = kernel->name == linkgauge::kKernelFill || kernel->name.rfind(linkgauge::kKernelCopy, 0) == 0;
  stream->push([this, host, extension, held, pointers, blocks, threads, shared_bytes, broken, writes] {
    if (writes && (*held)[0] < kFirstAddress) {
      if (settings_.abort_when_lost) std::abort();
      lost_ = kIllegalAddress;
    }
    if (lost_ != 0) return;
    auto places = pointers;
    if (extension != nullptr) return extension(places.data(), blocks, threads);
    host.run(places.data(), {blocks, threads, shared_bytes});
    if (!broken) return;
    auto* target = reinterpret_cast<unsigned char*>((*held)[0]);  // fill and copy: target, ..., bytes
    const std::uint64_t bytes = host.argument_bytes.size() == 3 ? (*held)[2] : (*held)[1];
    if (bytes > 0) target[bytes - 1] = static_cast<unsigned char>(~target[bytes - 1]);
  });
  return true;
}

void Machine::extend(const char* name, const std::uint8_t* argument_bytes, std::size_t count, Run run) {
  const std::lock_guard lock(mutex_);
  Extension& extension = extensions_[name];
  if (run != nullptr) extension.argument_bytes.assign(argument_bytes, argument_bytes + count);
  extension.run = run;
}

}  // namespace stand_in

void stand_in_configure(const char* text) { stand_in::Machine::instance().configure(text); }
int stand_in_calls(const char* call) { return stand_in::Machine::instance().calls(call); }
int stand_in_live() { return stand_in::Machine::instance().live(); }
void stand_in_extend(const char* name, const unsigned char* argument_bytes, unsigned long count,
                     void (*run)(void**, unsigned, unsigned)) {
  stand_in::Machine::instance().extend(name, argument_bytes, count, run);
}
