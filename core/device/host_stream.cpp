#include "device/host_stream.h"

#include <sched.h>

#include <csignal>
#include <cstring>

#include "base/errors.h"
#include "base/not_copied.h"
#include "base/now.h"

namespace linkgauge {
namespace {

// Signals are for the program's own threads: one that landed here would find Python's handlers on a foreign thread.
class SignalsBlocked : NotCopied {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// The longest that an idle stream looks for a command before it sleeps, from which waking takes tens of microseconds:
// longer than ranks that are on time wait for a sample's agreed start, so that copies of samples and of programs, which
// follow each other at once, find it alike.
constexpr std::int64_t kIdleNs = 200'000;

std::size_t words_of(std::size_t bytes) { return (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t); }

}  // namespace

// The ring is not initialized: of a thousand streams it would be half a gigabyte of pages.
HostStream::HostStream() : ring_(std::make_unique_for_overwrite<std::array<Command, kCapacity>>()) {
  const SignalsBlocked blocked;
  thread_.start([this] { run(); });
  pthread_setname_np(thread_.last().native_handle(), "lg-stream");
}

HostStream::~HostStream() {
  push([](Command& command) { command.kind = Kind::kStop; });
}

template <typename Fill>
void HostStream::push(const Fill& fill) {
  const std::lock_guard lock(push_mutex_);
  const std::uint64_t number = queued_.load(std::memory_order_relaxed);
  if (number >= kCapacity) completed_.wait_for(number - kCapacity + 1);
  fill((*ring_)[number % kCapacity]);
  feeders_core_.store(sched_getcpu(), std::memory_order_relaxed);
  store_before_looking(queued_, number + 1);
  if (sleeping_.load(std::memory_order_seq_cst) != 0) {
    sleeping_.store(0, std::memory_order_seq_cst);
    wake_all(sleeping_);
  }
}

void HostStream::copy(void* target, const void* source, std::size_t bytes) {
  push([&](Command& command) {
    command.kind = Kind::kCopy;
    command.target = target;
    command.source = source;
    command.bytes = bytes;
  });
}

void HostStream::launch(const HostKernel& kernel, const LaunchShape& shape, void** arguments) {
  std::size_t words = 0;
  for (const std::uint8_t bytes : kernel.argument_bytes) words += words_of(bytes);
  if (kernel.argument_bytes.size() > kMaxArguments || words > kMaxArgumentWords)
    throw CallerError("a host kernel takes at most 12 parameters, and 256 bytes of them");
  push([&](Command& command) {
    command.kind = Kind::kLaunch;
    command.run = kernel.run;
    command.blocks = shape.blocks;
    command.threads = shape.threads;
    command.shared_bytes = shape.shared_bytes;
    command.argument_count = static_cast<std::uint8_t>(kernel.argument_bytes.size());
    std::size_t word = 0;
    for (std::size_t i = 0; i < kernel.argument_bytes.size(); ++i) {
      command.argument_words[i] = static_cast<std::uint8_t>(word);
      std::memcpy(&command.arguments[word], arguments[i], kernel.argument_bytes[i]);
      word += words_of(kernel.argument_bytes[i]);
    }
  });
}

void HostStream::record(HostEvent& event) {
  event.hold();
  push([&](Command& command) {
    command.kind = Kind::kRecord;
    command.event = &event;
    command.recording = event.next_recording();
  });
}

void HostStream::wait(HostEvent& event) {
  event.hold();
  push([&](Command& command) {
    command.kind = Kind::kWait;
    command.event = &event;
    command.recording = event.last_recording();
  });
}

void HostStream::run() {
  for (std::uint64_t next = 0;; ++next) {
    wait_for_command(next);
    const bool go_on = execute((*ring_)[next % kCapacity]);
    completed_.raise_to(next + 1);
    if (!go_on) return;
  }
}

void HostStream::wait_for_command(std::uint64_t next) {
  const auto waiting = [&] { return queued_.load(std::memory_order_acquire) <= next; };
  const int core = sched_getcpu();
  core_.store(core, std::memory_order_relaxed);
  const int spins = core == feeders_core_.load(std::memory_order_relaxed) ? 0 : spins_before_yield();
  for (int i = spins; i > 0 && waiting(); --i) pause_spin();
  const std::int64_t idle_ns = crowded.load(std::memory_order_relaxed) ? 0 : kIdleNs;
  const std::int64_t begin_ns = now_ns();
  for (int i = yields_before_sleep(); waiting() && (i > 0 || now_ns() - begin_ns < idle_ns); --i) sched_yield();
  while (waiting()) {
    store_before_looking(sleeping_, 1U);
    if (queued_.load(std::memory_order_seq_cst) > next) {
      sleeping_.store(0, std::memory_order_seq_cst);
      return;
    }
    sleep_on(sleeping_, 1);
  }
}

void HostStream::synchronize() {
  const bool shared = core_.load(std::memory_order_relaxed) == sched_getcpu();
  completed_.wait_for(queued_.load(std::memory_order_acquire), shared ? 0 : spins_before_yield());
}

bool HostStream::execute(Command& command) {
  switch (command.kind) {
    case Kind::kCopy:
      std::memcpy(command.target, command.source, command.bytes);
      return true;
    case Kind::kLaunch: {
      std::array<void*, kMaxArguments> arguments;
      for (std::size_t i = 0; i < command.argument_count; ++i)
        arguments[i] = &command.arguments[command.argument_words[i]];
      command.run(arguments.data(), {command.blocks, command.threads, command.shared_bytes});
      return true;
    }
    case Kind::kRecord:
      command.event->finish(command.recording, now_ns());
      command.event->let_go();
      return true;
    case Kind::kWait:
      command.event->wait_for(command.recording);
      command.event->let_go();
      return true;
    case Kind::kStop:
      return false;
  }
  return false;
}

}  // namespace linkgauge
