// The table for NCCL against the vendor's own header. Nothing runs: a difference does not compile.
#include "transport/nccl/api.h"
//
#include <nccl.h>
#include <nccl_device/host.h>

#include <cstddef>

#include "same_abi.h"

namespace linkgauge::ccl {
namespace {

// Structures are only named here: a newer header has further fields behind those that are restated.
#define LINKGAUGE_COMPARE(name, ...)                                                   \
  static_assert(SameAbi<__VA_ARGS__, std::remove_pointer_t<decltype(&::name)>>::value, \
                #name " differs from the header");
LINKGAUGE_CCL_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE)

}  // namespace
}  // namespace linkgauge::ccl

#include "transport/nccl/config.h"
#include "transport/nccl/device.h"

namespace linkgauge::ccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(kSuccess == ncclSuccess);
static_assert(kInProgress == ncclInProgress);
static_assert(kWindowSymmetric == NCCL_WIN_COLL_SYMMETRIC);

// A newer header has further fields behind these.
#define LINKGAUGE_SAME_MEMBER(Mine, Theirs, name)                                                             \
  static_assert(offsetof(Mine, name) == offsetof(Theirs, name) && sizeof(Mine::name) == sizeof(Theirs::name), \
                #Theirs "::" #name " lies elsewhere");
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, size)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, magic)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, version)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, blocking)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, cgaClusterSize)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, minCTAs)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, maxCTAs)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, netName)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, splitShare)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, trafficClass)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, commName)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, collnetEnable)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, CTAPolicy)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, shrinkShare)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, nvlsCTAs)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, nChannelsPerNetPeer)
LINKGAUGE_SAME_MEMBER(Config, ncclConfig_t, nvlinkCentricSched)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, size)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, magic)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, version)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, ext)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, minCTAs)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, maxCTAs)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, nvlsCTAs)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, cgaClusterSize)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, algSelection)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, forceAlgSelection)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, CTAPolicy)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, userProfilerTag)
LINKGAUGE_SAME_MEMBER(CallConfig, ncclCollConfig_t, launchCompletionEvent)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, size)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, magic)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, version)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, rank)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, nRanks)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, cudaDev)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, nvmlDev)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, deviceApiSupport)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, multimemSupport)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, ginType)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, nLsaTeams)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, hostRmaSupport)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, railedGinType)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, commHash)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, ginMinStride)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, ginConnectionType)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, ginSupport)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, devCommRuntimeVersionSize)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, cftSupport)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, cftMulticastSupport)
LINKGAUGE_SAME_MEMBER(Properties, ncclCommProperties_t, cftCountedSupport)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, size)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, magic)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, version)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, resourceRequirementsList)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, teamRequirementsList)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, lsaMultimem)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, barrierCount)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, lsaBarrierCount)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, railGinBarrierCount)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, lsaLLA2ABlockCount)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, lsaLLA2ASlotCount)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginForceEnable)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginContextCount)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginSignalCount)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginCounterCount)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginConnectionType)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginExclusiveContexts)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginQueueDepth)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginTrafficClass)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, worldGinBarrierCount)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginStrongSignalsRequired)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginVaSignalsRequired)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginCustomStride)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, ginType)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, useRuntimeVersion)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, cftCaps)
LINKGAUGE_SAME_MEMBER(DeviceRequirements, ncclDevCommRequirements_t, cftBarrierCount)
static_assert(kConfigMagic == NCCL_API_MAGIC);
static_assert(kUnset == NCCL_CONFIG_UNDEF_INT);
static_assert(kInvalidArgument == ncclInvalidArgument);
static_assert(kInvalidUsage == ncclInvalidUsage);

static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kInt8)] == ncclInt8);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kUint8)] == ncclUint8);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kInt32)] == ncclInt32);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kUint32)] == ncclUint32);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kInt64)] == ncclInt64);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kUint64)] == ncclUint64);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kFloat16)] == ncclFloat16);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kBfloat16)] == ncclBfloat16);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kFloat32)] == ncclFloat32);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kFloat64)] == ncclFloat64);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kFloat8E4m3)] == ncclFloat8e4m3);
static_assert(kDatatypes[static_cast<std::size_t>(Datatype::kFloat8E5m2)] == ncclFloat8e5m2);

static_assert(kOps[static_cast<std::size_t>(ReduceOp::kSum)] == ncclSum);
static_assert(kOps[static_cast<std::size_t>(ReduceOp::kProd)] == ncclProd);
static_assert(kOps[static_cast<std::size_t>(ReduceOp::kMin)] == ncclMin);
static_assert(kOps[static_cast<std::size_t>(ReduceOp::kMax)] == ncclMax);
static_assert(kOps[static_cast<std::size_t>(ReduceOp::kAvg)] == ncclAvg);

}  // namespace
}  // namespace linkgauge::ccl
