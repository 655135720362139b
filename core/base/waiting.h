// Waiting on a word of memory: the pause of a spin, and sleeping in the kernel until the word changes.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <thread>

#include "base/now.h"

namespace linkgauge {

inline void pause_spin() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` is a no-op on most cores; isb takes about as long as x86's pause
#endif
}

// Sleeps while `word` holds `seen`. May return early; the caller looks again. Works between processes.
inline void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  static_assert(sizeof(word) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

inline void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Writes `value` such that no load after it is made before it: one of two who each write and then look at the other's
// word sees the other's. An exchange, which x86 makes of a sequentially consistent store anyway: QEMU up to 7.2 at
// least lets a load overtake such a store on aarch64 (13,588 of 300,000 pairs missed each other, none with exchanges).
template <typename Value>
void store_before_looking(std::atomic<Value>& word, Value value) {
  word.exchange(value, std::memory_order_seq_cst);
}

// Looks before a waiting thread gives its core away: for 20 us by the clock, as a pause takes from 10 to 70 ns by
// processor. That is longer than tens of KiB take there and back; by 2 us, what a switch takes, a ping-pong between
// host devices with a core each took up to a fifth longer. Who is known to wait for what needs its core looks not at
// all (HostStream). Asked once a process.
inline int patient_spins() {
  constexpr std::int64_t kPatienceNs = 20'000;
  constexpr int kTried = 32;
  static const int spins = [] {
    std::int64_t least_ns = kPatienceNs;  // of several: one that lost its core says nothing
    for (int attempt = 0; attempt < 5; ++attempt) {
      const std::int64_t begin_ns = now_ns();
      for (int i = 0; i < kTried; ++i) pause_spin();
      least_ns = std::min(least_ns, std::max<std::int64_t>(now_ns() - begin_ns, 1));
    }
    return static_cast<int>(std::max<std::int64_t>(kTried * kPatienceNs / least_ns, 1));
  }();
  return spins;
}

// Looks whether it is done every `interval`, asleep meanwhile, for as long as `most`; whether it was.
template <typename Done>
bool look_until(const Done& done, std::chrono::nanoseconds interval,
                std::chrono::nanoseconds most = std::chrono::nanoseconds::max()) {
  const std::int64_t begin_ns = now_ns();
  while (!done()) {
    if (now_ns() - begin_ns > most.count()) return false;
    std::this_thread::sleep_for(interval);
  }
  return true;
}

// Whether this process has so many ranks that each look of one that waits delays those that it waits for, and each that
// goes to sleep is one less of them. For good: set where the ranks are made.
inline std::atomic<bool> crowded{false};
inline constexpr int kCrowdedRanksPerCore = 8;

// Whether this process's ranks, with their streams' threads, may use less than a core each by their cgroup's CPU quota.
// Who waits then sleeps: each look spends quota that those need whom it waits for, and once it is spent the kernel
// stops all of them for the rest of a period (some 100 ms). For good: set before ranks are made (run/rank/worker.py).
inline std::atomic<bool> spares_quota{false};

inline void spare_quota() {
  spares_quota.store(true, std::memory_order_relaxed);
  crowded.store(true, std::memory_order_relaxed);
}

// Gives the core away for a moment: to whoever is runnable, or to nobody where looking again costs quota.
inline void give_way() {
  constexpr std::chrono::microseconds kPause{50};  // as long as Linux lets a sleep take by default
  if (spares_quota.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(kPause);
  } else {
    sched_yield();
  }
}

// The same for what may run on the waiter's own core: a thread that is bound to one core waits for nothing that runs
// beside it there, and each look would only delay what it waits for. Asked once a thread.
inline int spins_before_yield() {
  thread_local const int spins = [] {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1 ? 0 : patient_spins();
  }();
  return crowded.load(std::memory_order_relaxed) ? 0 : spins;
}

// How often then to give it away before going to sleep.
inline int yields_before_sleep() { return crowded.load(std::memory_order_relaxed) ? 1 : 100; }

// Those who sleep until what they wait for is written. Works between processes.
class Sleepers {
 public:
  // Writes `value` to a word that decides what somebody sleeps for. Where nobody sleeps it costs one fence.
  template <typename Value>
  void write_and_wake(std::atomic<Value>& word, Value value) {
    store_before_looking(word, value);
    if (count_.load(std::memory_order_seq_cst) == 0) return;
    turn_.fetch_add(1, std::memory_order_seq_cst);
    wake_all(turn_);
  }

  // Sleeps until over(), whose loads of such words are sequentially consistent.
  template <typename Over>
  void sleep_until(const Over& over) {
    count_.fetch_add(1, std::memory_order_seq_cst);
    while (true) {
      const std::uint32_t turn = turn_.load(std::memory_order_seq_cst);
      if (over()) break;
      sleep_on(turn_, turn);
    }
    count_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  std::atomic<std::uint32_t> turn_{0};
  std::atomic<std::uint32_t> count_{0};
};

// A counter that only rises and that threads wait for: spin for a while, give the core away for a while,
// then sleep, so that a long copy is not slowed by those who wait for it.
class RisingCounter {
 public:
  std::uint64_t value() const { return value_.load(std::memory_order_acquire); }

  void raise_to(std::uint64_t value) { sleepers_.write_and_wake(value_, value); }

  // `spins`: 0 where who raises it is known to need this core.
  void wait_for(std::uint64_t wanted, int spins = spins_before_yield()) {
    if (value() >= wanted) return;
    for (int i = spins; i > 0; --i) {
      if (value() >= wanted) return;
      pause_spin();
    }
    for (int i = yields_before_sleep(); i > 0; --i) {
      if (value() >= wanted) return;
      give_way();
    }
    sleepers_.sleep_until([&] { return value_.load(std::memory_order_seq_cst) >= wanted; });
  }

 private:
  std::atomic<std::uint64_t> value_{0};
  Sleepers sleepers_;
};

}  // namespace linkgauge
