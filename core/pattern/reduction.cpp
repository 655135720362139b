#include <cstring>

#include "kernels/kernels.h"
#include "pattern/buffered_operation.h"
#include "pattern/channel_set.h"
#include "pattern/operations.h"

namespace linkgauge {
namespace {

// Every operand is brought to the rank that reduces it, into a block of scratch for each peer, and lg_reduce adds them
// on that rank's device. Allreduce then sends the result back from rank 0. The steps of an iteration depend on each
// other, so post() returns when it is over.
class Reduction final : public BufferedOperation {
 public:
  Reduction(Transport& transport, const RankContext& context, const CaseSpec& spec)
      : BufferedOperation(transport, context, spec),
        root_(spec.pattern == Pattern::kReduce ? spec.root : 0),
        reduces_here_(spec.pattern == Pattern::kReduceScatter || context.rank() == root_),
        block_(block_bytes(spec, context.size())) {}

  void post() override {
    operands_.put_all();
    operands_.get_all();
    operands_.complete_all(Completion::kLocal);
    if (reduces_here_) reduce();
    if (reads_what_arrives(spec().pattern)) operands_.consumed_all();
    if (spec().pattern != Pattern::kAllreduce) return;
    results_.put_all();
    results_.get_all();
    results_.complete_all(Completion::kLocal);
  }
  void complete() override {}

 private:
  void connect() override {
    const auto peers = static_cast<std::size_t>(ranks()) - 1;
    if (reduces_here_) allocate(peers);
    std::vector<PlannedFlow> operands;
    for (int shift = 1; shift < ranks(); ++shift) {
      // The operand of rank `to + shift` goes to scratch block `shift - 1` of rank `to`.
      const std::size_t scratch = static_cast<std::size_t>(shift - 1) * block_;
      for (int to = 0; to < ranks(); ++to) {
        const int from = (to + shift) % ranks();
        if (spec().pattern == Pattern::kReduceScatter) {
          operands.push_back({from, to, static_cast<std::size_t>(to) * block_, scratch, block_});
        } else if (to == root_) {
          operands.push_back({from, to, 0, scratch, block_});
        }
      }
    }
    operands_.connect(transport(), context(), spec(), operands, source(), &scratch_);
    if (spec().pattern != Pattern::kAllreduce) return;
    std::vector<PlannedFlow> results;
    for (int to = 0; to < ranks(); ++to) {
      if (to != root_) results.push_back({root_, to, 0, 0, block_});
    }
    results_.connect(transport(), context(), spec(), results, target(), target());
  }

  void disconnect() noexcept override {
    operands_.disconnect();
    results_.disconnect();
  }
  void free_scratch() noexcept override {
    stream_ = Stream();
    scratch_ = Buffer();
    operand_list_ = Buffer();
  }

  void allocate(std::size_t peers) {
    const int device = context().device();
    scratch_ = Buffer(runtime(), device, MemoryKind::kDevice, peers * block_);
    operand_list_ = Buffer(runtime(), device, MemoryKind::kDevice, (peers + 1) * sizeof(void*));
    std::vector<const void*> operands;
    const bool scatters = spec().pattern == Pattern::kReduceScatter;
    const std::size_t own = scatters ? static_cast<std::size_t>(rank()) * block_ : 0;
    operands.push_back(source()->at(own));
    for (std::size_t peer = 0; peer < peers; ++peer) operands.push_back(scratch_.at(peer * block_));
    runtime().copy_now(operand_list_.data(), device, operands.data(), -1, operands.size() * sizeof(void*));
    stream_ = Stream(runtime(), device);
    kernel_ = runtime().kernel(device, kKernelReduce);
    shape_ = strided_shape(runtime().multiprocessors(device), block_);
    result_ = target()->at(scatters && spec().in_place ? own : 0);
    list_ = operand_list_.data();
    count_ = ranks();
    elements_ = block_ / size_of(spec().datatype);
    datatype_ = static_cast<std::uint32_t>(spec().datatype);
    op_ = static_cast<std::uint32_t>(spec().op);
  }

  void reduce() {
    void* arguments[] = {&result_, &list_, &count_, &elements_, &datatype_, &op_};
    runtime().launch(kernel_, shape_, arguments, stream_.handle());
    stream_.synchronize();
  }

  int root_;
  bool reduces_here_;
  std::size_t block_;
  Buffer scratch_;
  Buffer operand_list_;
  ChannelSet operands_;  // after scratch_: goes first
  ChannelSet results_;
  Stream stream_;
  KernelHandle kernel_ = nullptr;
  LaunchShape shape_;
  void* result_ = nullptr;
  void* list_ = nullptr;
  std::int32_t count_ = 0;
  std::uint64_t elements_ = 0;
  std::uint32_t datatype_ = 0;
  std::uint32_t op_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_reduction(Transport& transport, const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<Reduction>(transport, context, spec);
}

}  // namespace linkgauge
