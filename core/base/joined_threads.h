// Threads that are joined when their owner goes, however it goes. A std::thread that an exception leaves joinable ends
// the process; std::jthread is not in every C++ library that wheels are built with.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/not_copied.h"

namespace linkgauge {

class JoinedThreads : NotCopied {
 public:
  ~JoinedThreads() { join(); }

  // Whether the machine gave a thread. MemoryError says what it lacks where the caller cannot do without.
  template <typename Body>
  bool try_start(Body&& body) {
    threads_.reserve(threads_.size() + 1);  // what throws here finds no thread that has begun
    try {
      threads_.emplace_back(std::forward<Body>(body));
      return true;
    } catch (const std::system_error& error) {
      why_ = error.code().message();
      return false;
    }
  }
  template <typename Body>
  void start(Body&& body) {
    if (try_start(std::forward<Body>(body))) return;
    throw MemoryError("cannot start a thread: " + why_ +
                      "; raise the limit of processes (ulimit -u, or the container's) or of memory");
  }
  std::thread& last() { return threads_.back(); }
  void join() noexcept {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
  std::string why_;
};

}  // namespace linkgauge
