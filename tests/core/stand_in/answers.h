// What the stand-ins of both vendors answer alike, over whatever their handle types are. Each answer is a code, which
// the vendors number alike; 0 is success.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "machine.h"

namespace stand_in {

enum Code : int {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
};

// A function of the library: the fault that is planted for it, else its answer.
#define ANSWERS(Result, name, parameters, answer)                                                          \
  LINKGAUGE_STAND_IN_EXPORT Result name parameters {                                                       \
    if (const int wrong = Machine::instance().fault(#name); wrong != 0) return static_cast<Result>(wrong); \
    return static_cast<Result>(answer);                                                                    \
  }

using Captured = std::vector<std::function<void()>>;

template <typename Handle>
Stream* stream_of(Handle stream) {
  return reinterpret_cast<Stream*>(stream);
}
template <typename Handle>
Event* event_of(Handle event) {
  return reinterpret_cast<Event*>(event);
}
template <typename Handle>
Captured* captured_of(Handle graph) {
  return reinterpret_cast<Captured*>(graph);
}
// Puts what was made where the caller wants it; whether there is any.
template <typename Handle, typename Made>
bool given(Handle* place, Made* made) {
  *place = reinterpret_cast<Handle>(made);
  return made != nullptr;
}

inline int unless(bool wrong, Code code) { return wrong ? code : 0; }

template <typename Address>
int allocate(Address* memory, Kind kind, int device, std::size_t bytes) {
  return unless(!given(memory, static_cast<char*>(Machine::instance().allocate(kind, device, bytes))), kOutOfMemory);
}
inline int release(void* memory, Kind kind) {
  return unless(!Machine::instance().release(memory, kind), kInvalidValue);
}
inline int memory_info(int device, std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = Machine::instance().free_bytes(device);
  *total_bytes = Machine::instance().settings().memory_bytes;
  return 0;
}
template <typename Address>
int address_range(Address* base, std::size_t* bytes, const void* memory) {
  void* found = nullptr;
  Allocation allocation{};
  if (!Machine::instance().find(memory, &found, &allocation)) return kInvalidValue;
  *bytes = allocation.bytes;
  return unless(!given(base, static_cast<char*>(found)), kInvalidValue);
}
template <typename VendorHandle>
int share(VendorHandle* handle, void* memory) {
  Handle made{};
  if (!Machine::instance().share(memory, &made)) return kInvalidValue;
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle->reserved, &made, sizeof(made));
  return 0;
}
template <typename Address, typename VendorHandle>
bool opened(Address* memory, const VendorHandle& handle, int device) {
  Handle shared{};
  std::memcpy(&shared, handle.reserved, sizeof(shared));
  return given(memory, static_cast<char*>(Machine::instance().open(shared, device)));
}
// A word moves as one, as by a copy engine: ranks poll words that others write.
inline void move(void* target, const void* source, std::size_t bytes) {
  using Word = std::uint64_t;
  const auto places = reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source);
  if (bytes != sizeof(Word) || places % alignof(Word) != 0) {
    std::memmove(target, source, bytes);
    return;
  }
  const Word word = __atomic_load_n(static_cast<const Word*>(source), __ATOMIC_ACQUIRE);
  __atomic_store_n(static_cast<Word*>(target), word, __ATOMIC_RELEASE);
}
inline int copy(void* target, const void* source, std::size_t bytes) {
  move(target, source, bytes);
  return 0;
}
// In order on the stream, as the driver's would be.
inline int queue_copy(void* target, const void* source, std::size_t bytes, Stream* stream) {
  if (stream == nullptr) return kInvalidHandle;
  stream->push([=] { move(target, source, bytes); });
  return 0;
}

// As devices have them, of which a smaller number goes first.
constexpr int kGreatestPriority = -5;
inline int stream_priorities(int* least, int* greatest) {
  *least = 0;
  *greatest = kGreatestPriority;
  return 0;
}
template <typename Handle>
int create_stream(Handle* stream, int device, int priority) {
  if (priority != kGreatestPriority) return kInvalidValue;
  return unless(!given(stream, Machine::instance().create_stream(device)), kOutOfMemory);
}
template <typename Handle>
int create_stream(Handle* stream, int device) {
  return unless(!given(stream, Machine::instance().create_stream(device)), kOutOfMemory);
}
inline int destroy_stream(Stream* stream) {
  return unless(!Machine::instance().destroy_stream(stream), kInvalidHandle);
}
inline int query(Stream* stream) {
  if (stream->idle()) return Machine::instance().lost();
  std::this_thread::yield();  // who asks again and again may have the core that the work needs
  return kNotReady;
}
inline int begin_capture(Stream* stream) { return unless(!stream->begin_capture(), kInvalidValue); }
template <typename Handle>
int end_capture(Stream* stream, Handle* graph) {
  return unless(!given(graph, stream->end_capture().release()), kInvalidValue);
}
// A graph is what was pushed; one that is ready is a copy of it.
template <typename Handle>
int instantiate(Handle* ready, Captured* graph) {
  Machine::instance().count_graph(1);
  return unless(!given(ready, new Captured(*graph)), kOutOfMemory);
}
inline int launch_graph(const Captured* graph, Stream* stream) {
  for (const auto& work : *graph) stream->push(work);
  return 0;
}
inline int destroy(const Captured* graph, bool ready) {
  delete graph;
  if (ready) Machine::instance().count_graph(-1);
  return 0;
}
template <typename Handle>
int create_event(Handle* event) {
  return unless(!given(event, Machine::instance().create_event()), kOutOfMemory);
}
inline int destroy_event(Event* event) { return unless(!Machine::instance().destroy_event(event), kInvalidHandle); }
inline int record(Event* event, Stream* stream) {
  if (event == nullptr || stream == nullptr) return kInvalidHandle;
  Machine::instance().record(event, stream);
  return 0;
}
inline int wait(Stream* stream, Event* event) {
  Machine::instance().wait(stream, event);
  return 0;
}
inline int elapsed(float* milliseconds, Event* start, Event* stop) {
  if (!Machine::instance().completed(start) || !Machine::instance().completed(stop)) return kNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(stop->when_ns - start->when_ns) / 1e6);
  return 0;
}

template <typename Handle>
int load_module(Handle* module, const void* image, const std::string& architecture) {
  return unless(!given(module, static_cast<char*>(Machine::instance().load_module(image, architecture))),
                kInvalidImage);
}
inline int unload_module(void* module) { return unless(!Machine::instance().unload_module(module), kInvalidHandle); }
template <typename Handle>
int find_kernel(Handle* function, void* module, const char* name) {
  return unless(!given(function, Machine::instance().find_kernel(module, name)), kNotFound);
}
// As strict as any driver may be: `elsewhere` where another device than the stream's is current.
template <typename Handle>
int launch(Handle function, unsigned blocks, unsigned threads, unsigned shared_bytes, Stream* stream, void** arguments,
           int current, int elsewhere) {
  if (function == nullptr || stream == nullptr) return kInvalidHandle;
  if (stream->device() != current) return elsewhere;
  return unless(!Machine::instance().launch(reinterpret_cast<Kernel*>(function), blocks, threads, shared_bytes, stream,
                                            arguments),
                kInvalidValue);
}

}  // namespace stand_in
