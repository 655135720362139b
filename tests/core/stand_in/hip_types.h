// The types of hip_runtime_api.h and hiprtc.h that the stand-in names, for building where HIP's headers are not.
#pragma once

#include <cstddef>

using hipError_t = int;
using hipDevice_t = int;
using hipDeviceAttribute_t = int;
using hipMemcpyKind = int;
using hipMemoryAdvise = int;
using hipDeviceptr_t = void*;
using hipStream_t = struct ihipStream_t*;
using hipEvent_t = struct ihipEvent_t*;
using hipModule_t = struct ihipModule_t*;
using hipGraph_t = struct ihipGraph*;
using hipGraphExec_t = struct hipGraphExec*;
using hipStreamCaptureMode = int;
using hipFunction_t = struct ihipModuleSymbol_t*;
struct hipUUID {
  char bytes[16];
};
struct hipIpcMemHandle_t {
  char reserved[64];
};
struct hipDeviceProp_t {
  char name[256];
  char rest[2000];
};
using hiprtcResult = int;
using hiprtcProgram = struct _hiprtcProgram*;
