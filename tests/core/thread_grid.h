// The direct allreduces' text (kernels/direct_text.h) with a thread of this process for every thread of a device's
// grid, and the data that tests give them. Under the thread sanitizer an access that nothing orders is an error.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/direct_text.h"

namespace linkgauge {

using values::u32;
using values::u64;

struct Shape {
  int ranks;
  int blocks;
  int threads;
};

// What the threads of one block share.
struct Block {
  explicit Block(int threads) : meeting(threads) {}
  std::barrier<> meeting;
  std::atomic<bool> failed{false};
  std::atomic<bool> any{false};
  direct::Places places{};
};

class ThreadExec : public push::LinesOfCores {
 public:
  ThreadExec(Block& shared, u64 thread, u64 threads, u64 block, u64 blocks)
      : shared_(&shared), thread_(thread), threads_(threads), block_(block), blocks_(blocks) {}
  u64 thread() const { return thread_; }
  u64 threads() const { return threads_; }
  u64 block() const { return block_; }
  u64 blocks() const { return blocks_; }
  void sync() { shared_->meeting.arrive_and_wait(); }
  bool any(bool mine) {
    if (mine) shared_->any = true;
    sync();
    const bool result = shared_->any;
    sync();
    if (thread_ == 0) shared_->any = false;
    sync();
    return result;
  }
  void pause() { std::this_thread::yield(); }
  u64 ticks() const {
    return static_cast<u64>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  u64 most_looks() const { return ~u64{0}; }
  u64 load_acquire(const u64* place) const {
    return std::atomic_ref<u64>(*const_cast<u64*>(place)).load(std::memory_order_acquire);
  }
  void store_release(u64* place, u64 value) const {
    std::atomic_ref<u64>(*place).store(value, std::memory_order_release);
  }
  void fail() { shared_->failed = true; }
  bool failed() const { return shared_->failed; }

 private:
  Block* shared_;
  u64 thread_;
  u64 threads_;
  u64 block_;
  u64 blocks_;
};

// Memory whose address is as a device's allocations are.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : words_(bytes / 16 + 2) {}
  unsigned char* data() { return reinterpret_cast<unsigned char*>(words_.data()); }

 private:
  std::vector<elements::Word16> words_;
};

// A rank's kernel: `body(exec, block)` on every thread of a grid. What one launch wrote the next sees, as on a stream:
// it has ended when the grid goes.
class ThreadGrid {
 public:
  template <typename Body>
  ThreadGrid(const Shape& shape, const Body& body) {
    for (int block = 0; block < shape.blocks; ++block) {
      blocks_.push_back(std::make_unique<Block>(shape.threads));
      for (int thread = 0; thread < shape.threads; ++thread) {
        threads_.emplace_back([shape, body, &shared = *blocks_.back(), block, thread] {
          ThreadExec exec(shared, static_cast<u64>(thread), static_cast<u64>(shape.threads), static_cast<u64>(block),
                          static_cast<u64>(shape.blocks));
          body(exec, shared);
        });
      }
    }
  }
  ~ThreadGrid() {
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadGrid(const ThreadGrid&) = delete;
  ThreadGrid& operator=(const ThreadGrid&) = delete;

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::thread> threads_;
};

struct Data {
  u32 datatype;
  u32 op;
  int ranks;
};

inline void fill(unsigned char* data, std::size_t bytes, const Data& kind, u64 seed, int rank) {
  const values::Recipe recipe = values::recipe_of(kind.datatype, kind.op, kind.ranks);
  for (std::size_t at = 0; at < bytes; ++at) {
    const u64 word = values::fill_word(kind.datatype, kind.op, seed, rank, recipe, at / 8);
    data[at] = static_cast<unsigned char>(values::byte_of(word, at));
  }
}

inline std::size_t wrong_bytes(const unsigned char* data, std::size_t bytes, const Data& kind, u64 seed) {
  const values::Recipe recipe = values::recipe_of(kind.datatype, kind.op, kind.ranks);
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < bytes; ++at) {
    const u64 word = values::expected_word(kind.datatype, kind.op, seed, 0, recipe, at / 8);
    wrong += data[at] != static_cast<unsigned char>(values::byte_of(word, at));
  }
  return wrong;
}

}  // namespace linkgauge
