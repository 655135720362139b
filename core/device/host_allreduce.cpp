#include "device/host_allreduce.h"

#include <atomic>
#include <chrono>
#include <limits>

#include "base/waiting.h"
#include "kernels/direct_text.h"

namespace linkgauge {
namespace {

using values::u64;

static_assert(sizeof(push::Job) <= 255);

// A block of one thread. Every rank takes its blocks in the same order, so that none waits for one whose turn is later.
class HostExec : public push::LinesOfCores {
 public:
  HostExec(u64 block, u64 blocks) : block_(block), blocks_(blocks) {}
  u64 thread() const { return 0; }
  u64 threads() const { return 1; }
  u64 block() const { return block_; }
  u64 blocks() const { return blocks_; }
  void sync() {}
  bool any(bool mine) const { return mine; }
  void pause() { give_way(); }  // the other side may need this core
  u64 ticks() const {
    return static_cast<u64>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  u64 most_looks() const { return std::numeric_limits<u64>::max(); }
  u64 load_acquire(const u64* place) const {
    return std::atomic_ref<u64>(*const_cast<u64*>(place)).load(std::memory_order_acquire);
  }
  void store_release(u64* place, u64 value) const {
    std::atomic_ref<u64>(*place).store(value, std::memory_order_release);
  }
  void fail() { failed_ = true; }
  bool failed() const { return failed_; }

 private:
  u64 block_;
  u64 blocks_;
  bool failed_ = false;
};

template <values::u32 kDatatype>
void push_all(const LaunchShape& shape, push::Job job) {
  HostExec first(0, shape.blocks);
  push::each_operation(first, job, [&](u64 epoch) {
    for (unsigned block = 0; block < shape.blocks; ++block) {
      HostExec exec(block, shape.blocks);
      push::operate<kDatatype>(exec, job, epoch);
    }
  });
}

struct PushOfDatatype {
  HostKernel kernel = {};
  template <values::u32 kDatatype>
  void run() {
    kernel = kernel_of<push_all<kDatatype>>();
  }
};

void allreduce(const LaunchShape& shape, void* const* lists, int ranks, int rank, u64 elements, std::uint32_t datatype,
               std::uint32_t op, std::uint32_t mode, u64 epoch, u64 patience, u64* failure) {
  const direct::Job job{lists, ranks, rank, elements, datatype, op, mode, epoch, patience, failure};
  for (unsigned block = 0; block < shape.blocks; ++block) {
    HostExec exec(block, shape.blocks);
    direct::Places places;
    direct::PartReducer<HostExec> reducer{exec, places, job};
    direct::allreduce(exec, job, places, reducer);
    if (exec.failed()) return;
  }
}

}  // namespace

HostKernel host_allreduce() { return kernel_of<allreduce>(); }

HostKernel host_allreduce_push(std::uint32_t datatype) {
  PushOfDatatype found;
  elements::with_datatype(datatype, found);
  return found.kernel;
}

}  // namespace linkgauge
