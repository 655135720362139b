// A stream of a host device: a queue of commands and the thread that runs them in order.
//
// Queuing a command takes no memory and one uncontended lock; the thread looks for the next for a while before it
// sleeps, so that the cost of a queued copy is small and the same from copy to copy. Where it and who feeds it are on
// one core, neither spins: each has to be off it for the other to go on.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/joined_threads.h"
#include "base/not_copied.h"
#include "base/waiting.h"
#include "device/device_runtime.h"
#include "device/host_kernels.h"

namespace linkgauge {

// An event outlives destroy_event() while a queued command still names it, so it counts its holders.
class HostEvent {
 public:
  void hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  std::uint64_t next_recording() { return recorded_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  std::uint64_t last_recording() const { return recorded_.load(std::memory_order_acquire); }
  bool complete() const { return completed_.value() >= last_recording(); }
  std::int64_t time_ns() const { return time_ns_.load(std::memory_order_acquire); }
  void finish(std::uint64_t recording, std::int64_t time_ns) {
    time_ns_.store(time_ns, std::memory_order_release);
    completed_.raise_to(recording);
  }
  void wait_for(std::uint64_t recording) { completed_.wait_for(recording); }

 private:
  ~HostEvent() = default;

  std::atomic<int> holders_{1};
  std::atomic<std::uint64_t> recorded_{0};  // how often record() was called
  RisingCounter completed_;                 // the last recording that the stream has reached
  std::atomic<std::int64_t> time_ns_{0};
};

class HostStream : NotCopied {
 public:
  static constexpr std::size_t kCapacity = 1024;  // commands under way, as of a CUDA stream; more wait for the oldest
  static constexpr std::size_t kMaxArguments = 12;
  static constexpr std::size_t kMaxArgumentWords = 32;  // of all of them together

  HostStream();
  ~HostStream();  // runs what is queued first

  void copy(void* target, const void* source, std::size_t bytes);
  void launch(const HostKernel& kernel, const LaunchShape& shape, void** arguments);
  void record(HostEvent& event);
  void wait(HostEvent& event);

  void synchronize();
  bool done() const { return completed_.value() >= queued_.load(std::memory_order_acquire); }

 private:
  enum class Kind : std::uint8_t { kCopy, kLaunch, kRecord, kWait, kStop };
  struct Command {
    Kind kind;
    std::uint8_t argument_count;
    std::array<std::uint8_t, kMaxArguments> argument_words;  // where each begins
    unsigned blocks;  // of the launch; a LaunchShape would write to every page of a fresh ring
    unsigned threads;
    unsigned shared_bytes;
    void (*run)(void** arguments, const LaunchShape& shape);
    HostEvent* event;
    std::uint64_t recording;
    void* target;
    const void* source;
    std::size_t bytes;
    std::array<std::uint64_t, kMaxArgumentWords> arguments;
  };

  template <typename Fill>
  void push(const Fill& fill);
  void run();
  bool execute(Command& command);
  void wait_for_command(std::uint64_t next);

  std::unique_ptr<std::array<Command, kCapacity>> ring_;
  std::mutex push_mutex_;                   // streams may be fed by several threads
  std::atomic<std::uint64_t> queued_{0};    // commands ever queued
  RisingCounter completed_;                 // commands ever finished
  std::atomic<std::uint32_t> sleeping_{0};  // 1: the thread sleeps on this word
  std::atomic<int> core_{-1};               // that the thread was last seen on
  std::atomic<int> feeders_core_{-1};       // that its last command came from
  JoinedThreads thread_;                    // goes first
};

}  // namespace linkgauge
