// What allreduces in one kernel an operation share, however their ranks wait for each other: the stream, the peers'
// memory, the failure words, the waiting host, and the choice of a grid by measuring.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/choosing.h"
#include "kernels/direct_text.h"
#include "transport/buffered_operation.h"
#include "transport/peer_memory.h"

namespace linkgauge {

// How long a kernel waits for its peers: longer than any rank is late, shorter than it takes for a case to be seen as
// hung.
inline constexpr std::int64_t kKernelPatienceNs = 6'000'000'000;

class InKernelAllreduce : public BufferedOperation {
 public:
  void post() override {
    ++epoch_;
    launch();
  }
  void complete() override;
  std::vector<DeviceQueue> queues() const override { return {{stream_.handle(), context().device()}}; }

 protected:
  static constexpr std::size_t kHostWords =
      32;  // failure's, and those of who derives from this, a line of 128 bytes on
  static constexpr std::size_t kOwnHostWord = 16;

  InKernelAllreduce(Transport& transport, const RankContext& context, const CaseSpec& spec);

  virtual void launch() = 0;                                             // queues the operation `epoch_`
  virtual void allocate(int device) = 0;                                 // the kernel, and the memory that only it uses
  virtual bool finished() { return runtime().done(stream_.handle()); }   // all that was launched; a poll
  virtual std::string missed(const direct::Failure& failure) const = 0;  // "rank 1 did not come to ..."

  // Collective: allocate() and the rest of what a rank needs alone, and that every device can reach the others.
  void allocate_and_agree();
  // Where every rank's `buffer` is for this rank's device; collective.
  std::vector<void*> reachable(const Buffer* buffer);
  Buffer zeroed(std::size_t bytes);

  // Collective over the job: tries `count` choices on the case's own buffers, all ranks of a part together and one part
  // after the other, and returns the one that choose_by_times() takes of the slowest ranks' times. Both numbers of a
  // trial are the same on all ranks. On a slow link not every choice is tried.
  std::size_t fastest_of(std::size_t count, const std::function<Trial(std::size_t)>& attempt);

  std::atomic_ref<std::uint64_t> host_word(std::size_t index) const {
    return std::atomic_ref<std::uint64_t>(static_cast<std::uint64_t*>(host_words_.data())[index]);
  }
  std::uint64_t patience() const;  // in the kernel's ticks

  void disconnect() noexcept override;
  void free_scratch() noexcept override;

  Buffer host_words_;
  Stream stream_;
  unsigned multiprocessors_ = 1;  // of the smallest device
  std::uint64_t epoch_ = 0;       // operations so far
  bool on_host_;

 private:
  unsigned least_multiprocessors();

  std::vector<PeerBuffer> opened_;
};

}  // namespace linkgauge
