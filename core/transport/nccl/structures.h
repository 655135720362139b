// NCCL's structures that its calls read, as its header has them; tests/core/stand_in/ takes them from here.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace linkgauge::ccl {

// ncclConfig_t as NCCL 2.28 has it. Fields are only ever added at the end: an older library reads as many bytes as it
// knows, a newer one sees by `version` which were not yet there.
struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
};
inline constexpr unsigned kConfigMagic = 0xcafebeef;
inline constexpr int kConfigVersion = 22800;  // of the structure above
inline constexpr int kUnset = INT_MIN;        // NCCL_CONFIG_UNDEF_INT

// ncclCollConfig_t as NCCL 2.32 has it, likewise.
struct CallConfig {
  std::size_t size;
  unsigned magic;
  unsigned version;
  void* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection;
  int CTAPolicy;
  std::uint64_t userProfilerTag;
  void* launchCompletionEvent;
};
inline constexpr int kCallConfigVersion = 23200;  // of the structure above

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

}  // namespace linkgauge::ccl
