// The types of DPCTL's C headers that the stand-in names, for building where these are not.
#pragma once

#include <cstddef>
#include <cstdint>

using DPCTLSyclContextRef = struct DPCTLOpaqueSyclContext*;
using DPCTLSyclDeviceRef = struct DPCTLOpaqueSyclDevice*;
using DPCTLSyclEventRef = struct DPCTLOpaqueSyclEvent*;
using DPCTLSyclPlatformRef = struct DPCTLOpaqueSyclPlatform*;
using DPCTLSyclQueueRef = struct DPCTLOpaqueSyclQueue*;
using DPCTLSyclUSMRef = struct DPCTLOpaqueSyclUSM*;
using DPCTLDeviceVectorRef = struct DPCTLDeviceVector*;
using error_handler_callback = void(int);
enum DPCTLSyclBackendType { DPCTL_LEVEL_ZERO = 1 << 17, DPCTL_OPENCL = 1 << 18 };
enum DPCTLSyclDeviceType { DPCTL_CPU = 1 << 2, DPCTL_GPU = 1 << 4 };
enum DPCTLSyclAspectType { gpu = 2, usm_shared_allocations = 14 };
enum DPCTLPeerAccessType { access_supported };
enum DPCTLSyclEventStatusType { DPCTL_RUNNING = 2, DPCTL_COMPLETE = 3 };
