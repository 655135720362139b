// The types of nccl.h that the stand-in names, for building where NCCL's header is not.
#pragma once

#include "transport/nccl/structures.h"

using cudaStream_t = struct CUstream_st*;
using ncclComm_t = struct ncclComm*;
using ncclWindow_t = struct ncclWindow_vidmem*;
struct ncclUniqueId {
  char internal[128];
};
using ncclConfig_t = linkgauge::ccl::Config;
using ncclCollConfig_t = linkgauge::ccl::CallConfig;
using ncclCommProperties_t = linkgauge::ccl::Properties;
using ncclDevCommRequirements_t = linkgauge::ccl::DeviceRequirements;
struct ncclDevComm;
using ncclDevComm_t = ncclDevComm;
enum ncclResult_t : unsigned {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
};
enum ncclRedOp_t : unsigned { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
enum ncclDataType_t : unsigned {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
};
