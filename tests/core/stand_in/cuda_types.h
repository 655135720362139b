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
struct CUuuid {
  char bytes[16];
};
struct CUipcMemHandle {
  char reserved[64];
};
