// The types of cuda.h that the stand-in names, for building where CUDA's headers are not.
#pragma once

#include <cstddef>

#define CUDAAPI
using CUresult = int;
using CUdevice = int;
using CUdevice_attribute = int;
using CUfunction_attribute = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUstreamCaptureMode = int;
using CUfunction = struct CUfunc_st*;
using CUmem_advise = int;
struct CUmemLocation {
  int type;
  int id;
};
using CUmemGenericAllocationHandle = unsigned long long;
using CUmemAllocationType = int;
using CUmemAllocationHandleType = int;
using CUmemAllocationGranularity_flags = int;
using CUmemAccess_flags = int;
struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};
struct CUmemFabricHandle {
  unsigned char data[64];
};
struct CUuuid {
  char bytes[16];
};
struct CUipcMemHandle {
  char reserved[64];
};
