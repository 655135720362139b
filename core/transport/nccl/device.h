// Kernels of ours that meet by NCCL's own barriers (kernels/linked/nccl.cu), on one rank: NCCL's communicator as a
// kernel has it, and the kernels that were compiled with the headers of the very library.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/not_copied.h"
#include "device/linked_kernels.h"
#include "transport/nccl/communicator.h"
#include "transport/nccl/structures.h"
#include "transport/operation.h"

namespace linkgauge {
// "" or why no kernel here meets by NCCL's barriers.
std::string why_not_lsa(const RankContext& context, const ccl::Library& library);

class CclDevice : NotCopied {
 public:
  // Collective over the case's ranks: `barriers` barriers among all of them, a block each, and the kernels, which the
  // first of a node makes alone (some seconds, once): others find them. Throws Unsupported on all with what is missing.
  CclDevice(const RankContext& context, std::shared_ptr<CclCommunicator> communicator, int barriers);
  ~CclDevice();

  KernelHandle kernel(const char* name) const { return linked_->kernel(name); }
  void* argument() { return bytes_.data(); }  // the first of each of these kernels

 private:
  CclDevice(const RankContext& context, std::shared_ptr<CclCommunicator> communicator);
  void load_kernels(const RankContext& context);
  void make(const RankContext& context, int barriers);

  Group* group_;
  std::shared_ptr<CclCommunicator> communicator_;
  std::unique_ptr<LinkedKernels> linked_;
  std::vector<std::byte> bytes_;  // ncclDevComm, as large as this library's version has it
  bool made_ = false;
};

// Pattern barrier: barriers of NCCL's one after the other in one kernel a rank.
std::unique_ptr<Operation> make_lsa_barrier(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                            const ccl::Library& library);
// `spec` as transport kernel has it: its allreduce whose ranks meet in the kernel, by these barriers.
std::unique_ptr<Operation> make_lsa_allreduce(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                              const ccl::Library& library, bool pushes);

}  // namespace linkgauge
