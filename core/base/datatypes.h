// The datatypes and the operations of reductions, a row each, in the order of their numbers.
//
// This text is also the first of the device's kernels: it includes nothing (kernels/values.h says why).
#pragma once

// OF(constant, name, bytes of an element)
#define LINKGAUGE_DATATYPES(OF)     \
  OF(kInt8, "int8", 1)              \
  OF(kUint8, "uint8", 1)            \
  OF(kInt32, "int32", 4)            \
  OF(kUint32, "uint32", 4)          \
  OF(kInt64, "int64", 8)            \
  OF(kUint64, "uint64", 8)          \
  OF(kFloat16, "float16", 2)        \
  OF(kBfloat16, "bfloat16", 2)      \
  OF(kFloat32, "float32", 4)        \
  OF(kFloat64, "float64", 8)        \
  OF(kFloat8E4m3, "float8_e4m3", 1) \
  OF(kFloat8E5m2, "float8_e5m2", 1)

// OF(constant, name)
#define LINKGAUGE_REDUCE_OPS(OF) OF(kSum, "sum") OF(kProd, "prod") OF(kMin, "min") OF(kMax, "max") OF(kAvg, "avg")
