// Allreduce in one kernel a rank, whose blocks meet those of the others while they run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/memory/in_kernel_allreduce.h"

namespace linkgauge {

class DeviceMetAllreduce : public InKernelAllreduce {
 public:
  DeviceMetAllreduce(Transport& transport, const RankContext& context, const CaseSpec& spec, bool pushes);

 protected:
  // What the ranks meet by, once each is known to reach the others; collective. Flags in their memory, here.
  virtual void make_meetings(int device);
  void free_scratch() noexcept override;

  KernelHandle kernel_ = nullptr;
  void* first_argument_ = nullptr;  // of such a kernel, where it has one more than kKernelAllreduce

 private:
  void connect() override;
  void allocate(int device) override;
  void launch() override;
  void tune();
  std::int64_t time_operations(int count);
  std::vector<LaunchShape> shapes_to_try() const;
  std::string missed(const direct::Failure& failure) const override;

  std::uint32_t mode_;
  Buffer flags_;
  Buffer lists_;
  LaunchShape shape_;
};

}  // namespace linkgauge
