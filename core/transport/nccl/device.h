// Kernels of ours that meet by NCCL's own barriers (kernels/linked/nccl.cu), on one rank: NCCL's communicator as a
// kernel has it, and the kernels that were compiled with the headers of the very library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/not_copied.h"
#include "device/linked_kernels.h"
#include "transport/nccl/communicator.h"
#include "transport/operation.h"

namespace linkgauge {
namespace ccl {

// ncclCommProperties_t and ncclDevCommRequirements_t as NCCL 2.32 has them. As of Config, a newer library sees by
// `version` what was not yet there.
struct Properties {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  int ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  int railedGinType;
  std::uint64_t commHash;
  int ginMinStride;
  int ginConnectionType;
  bool ginSupport[64];
  std::size_t devCommRuntimeVersionSize;
  bool cftSupport;
  bool cftMulticastSupport;
  bool cftCountedSupport;
};
struct DeviceRequirements {
  std::size_t size;
  unsigned magic;
  unsigned version;
  void* resourceRequirementsList;
  void* teamRequirementsList;
  bool lsaMultimem;
  int barrierCount;
  int lsaBarrierCount;
  int railGinBarrierCount;
  int lsaLLA2ABlockCount;
  int lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount;
  int ginSignalCount;
  int ginCounterCount;
  int ginConnectionType;
  bool ginExclusiveContexts;
  int ginQueueDepth;
  int ginTrafficClass;
  int worldGinBarrierCount;
  bool ginStrongSignalsRequired;
  bool ginVaSignalsRequired;
  int ginCustomStride;
  int ginType;
  bool useRuntimeVersion;
  int cftCaps;
  int cftBarrierCount;
};
inline constexpr int kDeviceVersion = 23200;  // of the structures above

}  // namespace ccl

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
