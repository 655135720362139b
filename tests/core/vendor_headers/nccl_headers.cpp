// The table for NCCL against the vendor's own header. Nothing runs: a difference does not compile.
#include "transport/ccl_api.h"
#include "transport/ccl_config.h"
//
#include <nccl.h>
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
#include <nccl_device/host.h>
#else  // as later headers have it
extern "C" ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**);
#endif

#include <cstddef>

#include "same_abi.h"

namespace linkgauge::ccl {
namespace {

// A function that this header does not have yet is compared where it has: optional ones came with later versions.
#define LINKGAUGE_COMPARE(name, ...)                                                   \
  static_assert(SameAbi<__VA_ARGS__, std::remove_pointer_t<decltype(&::name)>>::value, \
                #name " differs from the header");
LINKGAUGE_CCL_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE)

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(kSuccess == ncclSuccess);
static_assert(kInProgress == ncclInProgress);
static_assert(kWindowSymmetric == NCCL_WIN_COLL_SYMMETRIC);
static_assert(kWindowAlignment == NCCL_WIN_REQUIRED_ALIGNMENT);

// A newer header has further fields behind these.
#define LINKGAUGE_SAME_MEMBER(name)                                                                                 \
  static_assert(                                                                                                    \
      offsetof(Config, name) == offsetof(ncclConfig_t, name) && sizeof(Config::name) == sizeof(ncclConfig_t::name), \
      "ncclConfig_t::" #name " lies elsewhere")
LINKGAUGE_SAME_MEMBER(size);
LINKGAUGE_SAME_MEMBER(magic);
LINKGAUGE_SAME_MEMBER(version);
LINKGAUGE_SAME_MEMBER(blocking);
LINKGAUGE_SAME_MEMBER(cgaClusterSize);
LINKGAUGE_SAME_MEMBER(minCTAs);
LINKGAUGE_SAME_MEMBER(maxCTAs);
LINKGAUGE_SAME_MEMBER(netName);
LINKGAUGE_SAME_MEMBER(splitShare);
LINKGAUGE_SAME_MEMBER(trafficClass);
LINKGAUGE_SAME_MEMBER(commName);
LINKGAUGE_SAME_MEMBER(collnetEnable);
LINKGAUGE_SAME_MEMBER(CTAPolicy);
LINKGAUGE_SAME_MEMBER(shrinkShare);
LINKGAUGE_SAME_MEMBER(nvlsCTAs);
LINKGAUGE_SAME_MEMBER(nChannelsPerNetPeer);
LINKGAUGE_SAME_MEMBER(nvlinkCentricSched);
static_assert(kUnset == NCCL_CONFIG_UNDEF_INT);
static_assert(kInvalidArgument == ncclInvalidArgument);

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
