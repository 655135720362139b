#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "kernels/direct_text.h"
#include "kernels/kernels.h"
#include "transport/agreement.h"
#include "transport/buffered_operation.h"
#include "transport/memory/kernel_allreduce.h"
#include "transport/one_sided.h"
#include "transport/peer_memory.h"

namespace linkgauge {
namespace {

// Every rank tells all peers that it has come to a point, and waits until all have: the counters of the ordered pairs.
class PairwiseSignals {
 public:
  PairwiseSignals() = default;
  PairwiseSignals(const RankContext& context, const Flows& flows, const std::vector<FlowFlags>& flags)
      : group_(context.group) {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (flows[i].source == context.rank()) sent_.push_back(flags[i]);
      if (flows[i].target == context.rank()) awaited_.push_back(flags[i]);
    }
  }
  void meet() {
    ++count_;
    for (FlowFlags& flags : sent_) flags.ready->store(flags.ready_base + count_, std::memory_order_release);
    for (const FlowFlags& flags : awaited_) wait_for_flag(*flags.ready, flags.ready_base + count_, *group_, {});
  }

 private:
  Group* group_ = nullptr;
  std::vector<FlowFlags> sent_;
  std::vector<FlowFlags> awaited_;
  std::uint64_t count_ = 0;
};

// Ranks meet on the host, between launches.
class HostMetAllreduce final : public BufferedOperation {
 public:
  HostMetAllreduce(Transport& transport, const RankContext& context, const CaseSpec& spec, bool push)
      : BufferedOperation(transport, context, spec), two_shot_(!is_one_shot(spec.mechanism)), push_(push) {}

  // Ranks wait for each other on the host between the steps, so post() returns when the iteration is over. They meet
  // before it, since a peer's operand must be there to be read, and after it, since none may change while a peer reads.
  void post() override {
    signals_.meet();
    if (reduced_.bytes > 0) {
      reduce();
      stream_.synchronize();
    }
    if (two_shot_) {
      if (!push_) signals_.meet();  // the peers' parts are ready to be read
      gather();
    }
    signals_.meet();
  }
  void complete() override {}

 private:
  void connect() override {
    const int device = context().device();
    const std::size_t size = traffic().bytes();
    Flows to_source;  // who reads whose operand, and whose result
    Flows to_target;
    std::string reason;
    for (int owner = 0; owner < ranks(); ++owner) {
      const int owner_device = context().device_of_rank[static_cast<std::size_t>(owner)];
      if (owner_device != device && reason.empty()) reason = runtime().peer_access(device, owner_device);
      for (int user = 0; user < ranks(); ++user) {
        if (owner == user || (owner != rank() && user != rank())) continue;
        to_source.add({owner, user, owner == rank() ? source() : nullptr, nullptr});
        to_target.add({owner, user, owner == rank() ? target() : nullptr, nullptr});
      }
    }
    agree_or_throw(group(), reason);
    sources_ = transport().peers(context(), spec(), to_source, ExposedEnd::kSource);
    if (two_shot_) targets_ = transport().peers(context(), spec(), to_target, ExposedEnd::kSource);
    signals_ = PairwiseSignals(context(), to_source, connect_flags(context(), to_source));

    reduced_ = two_shot_ ? direct::part_of(size, ranks(), rank()) : direct::Part{0, size};
    std::vector<const void*> operands(static_cast<std::size_t>(ranks()));
    operands[static_cast<std::size_t>(rank())] = source()->at(reduced_.offset);
    for (std::size_t i = 0; i < to_source.size(); ++i) {
      if (to_source[i].target != rank()) continue;
      const int owner = to_source[i].source;
      operands[static_cast<std::size_t>(owner)] = static_cast<std::byte*>(sources_[i].data) + reduced_.offset;
      if (two_shot_) add_gather_copy(owner, static_cast<std::byte*>(targets_[i].data), size);
    }
    operand_list_ = Buffer(runtime(), device, MemoryKind::kDevice, operands.size() * sizeof(void*));
    runtime().copy_now(operand_list_.data(), device, operands.data(), -1, operands.size() * sizeof(void*));
    stream_ = Stream(runtime(), device);
    reduce_kernel_ = runtime().kernel(device, kKernelReduce);
    copy_kernel_ = runtime().kernel(device, kKernelCopy);
    multiprocessors_ = runtime().multiprocessors(device);
  }

  void add_gather_copy(int peer, std::byte* peer_target, std::size_t size) {
    const direct::Part part = push_ ? reduced_ : direct::part_of(size, ranks(), peer);
    if (part.bytes == 0) return;
    std::byte* here = target()->at(part.offset);
    std::byte* there = peer_target + part.offset;
    copies_.push_back(push_ ? Copy{there, here, part.bytes} : Copy{here, there, part.bytes});
  }

  void disconnect() noexcept override {
    stream_ = Stream();  // what was queued reaches into the peers' memory
    signals_ = {};
    sources_.clear();
    targets_.clear();
    copies_.clear();
  }
  void free_scratch() noexcept override { operand_list_ = Buffer(); }

  void reduce() {
    runtime().launch_with(reduce_kernel_, shape(reduced_.bytes), stream_.handle(), target()->at(reduced_.offset),
                          operand_list_.data(), std::int32_t{ranks()},
                          std::uint64_t{reduced_.bytes / size_of(traffic().datatype)},
                          static_cast<std::uint32_t>(traffic().datatype), static_cast<std::uint32_t>(traffic().op));
  }

  void gather() {
    for (const Copy& copy : copies_) {
      runtime().launch_with(copy_kernel_, shape(copy.bytes), stream_.handle(), copy.to, copy.from, copy.bytes);
    }
    stream_.synchronize();
  }

  LaunchShape shape(std::uint64_t bytes) const {
    constexpr unsigned kThreads = 512;
    if (mechanism().blocks > 0) return {static_cast<unsigned>(mechanism().blocks), kThreads, 0};
    return strided_shape(multiprocessors_, bytes, kThreads, 4);
  }

  struct Copy {
    void* to;
    const void* from;
    std::uint64_t bytes;
  };
  bool two_shot_;
  bool push_;
  direct::Part reduced_{0, 0};
  std::vector<PeerBuffer> sources_;
  std::vector<PeerBuffer> targets_;
  std::vector<Copy> copies_;
  PairwiseSignals signals_;
  Buffer operand_list_;
  Stream stream_;
  KernelHandle reduce_kernel_ = nullptr;
  KernelHandle copy_kernel_ = nullptr;
  unsigned multiprocessors_ = 1;
};

}  // namespace

std::unique_ptr<Operation> make_host_met_allreduce(Transport& transport, const RankContext& context,
                                                   const CaseSpec& spec, bool pushes) {
  return std::make_unique<HostMetAllreduce>(transport, context, spec, pushes);
}

}  // namespace linkgauge
