#include <cstring>

#include "kernels/kernels.h"
#include "operation/channel_set.h"
#include "operation/make_operation.h"
#include "transport/buffered_operation.h"

namespace linkgauge {
namespace {

// The stages of a schedule one after the other: allreduce, reduce, reduce_scatter, whose operands are brought into the
// scratch of the rank that reduces them, where lg_reduce adds them on that rank's device; and barrier. Stages depend on
// each other, so post() returns when an iteration is over.
class Staged final : public BufferedOperation {
 public:
  Staged(Transport& transport, const RankContext& context, const CaseSpec& spec)
      : BufferedOperation(transport, context, spec) {}

  void post() override {
    for (ChannelSet& stage : stages_) {
      stage.exchange_all();
      stage.complete_all(Completion::kLocal);
      if (&stage != &stages_.front()) continue;
      if (kernel_ != nullptr) reduce();
      if (reads_what_arrives(traffic().pattern)) stage.consumed_all();
    }
  }
  void complete() override {}

 private:
  void connect() override {
    const Schedule schedule = schedule_of(traffic(), ranks(), rank());
    for (const Step& step : schedule.steps) {
      if (step.kind == StepKind::kReduce) allocate(step, schedule.scratch_bytes);
    }
    stages_ = std::vector<ChannelSet>(schedule.transfer_stages.size());
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      std::vector<Step> steps;
      for (const Step& step : schedule.steps) {
        if (step.stage == schedule.transfer_stages[i]) steps.push_back(step);
      }
      stages_[i].connect(transport(), context(), spec(), steps, {source(), target(), &scratch_});
    }
  }

  void disconnect() noexcept override { stages_.clear(); }
  void free_scratch() noexcept override {
    stream_ = Stream();
    scratch_ = Buffer();
    operand_list_ = Buffer();
  }

  void allocate(const Step& reduction, std::size_t scratch_bytes) {
    const int device = context().device();
    const std::size_t block = reduction.bytes;
    scratch_ = transport().make_buffer(context(), spec(), MemoryKind::kDevice, scratch_bytes,
                                       {.fabric_handle = spec().places.source.options.fabric_handle});
    std::vector<const void*> operands = {source()->at(reduction.source_offset)};
    for (std::size_t place = 0; place < scratch_bytes; place += block) operands.push_back(scratch_.at(place));
    operand_list_ = Buffer(runtime(), device, MemoryKind::kDevice, operands.size() * sizeof(void*));
    runtime().copy_now(operand_list_.data(), device, operands.data(), -1, operands.size() * sizeof(void*));
    stream_ = Stream(runtime(), device);
    kernel_ = runtime().kernel(device, kKernelReduce);
    shape_ = strided_shape(runtime().multiprocessors(device), block);
    result_ = target()->at(reduction.target_offset);
    elements_ = block / size_of(traffic().datatype);
  }

  void reduce() {
    runtime().launch_with(kernel_, shape_, stream_.handle(), result_, operand_list_.data(), std::int32_t{ranks()},
                          elements_, static_cast<std::uint32_t>(traffic().datatype),
                          static_cast<std::uint32_t>(traffic().op));
    stream_.synchronize();
  }

  Buffer scratch_;
  Buffer operand_list_;
  std::vector<ChannelSet> stages_;  // after scratch_: goes first
  Stream stream_;
  KernelHandle kernel_ = nullptr;  // where this rank reduces
  LaunchShape shape_;
  void* result_ = nullptr;
  std::uint64_t elements_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_staged(Transport& transport, const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<Staged>(transport, context, spec);
}

}  // namespace linkgauge
