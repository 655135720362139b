// The table of calls that newer names have taken the place of, against cuda.h as it shows its old names. Nothing runs:
// a difference does not compile.
#include "device/cuda_api.h"
//
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "same_abi.h"

namespace {

using namespace linkgauge;        // NOLINT
using namespace linkgauge::cuda;  // NOLINT: the types that the table's macro names

#define LINKGAUGE_COMPARE(name, type) \
  static_assert(SameAbi<type, std::remove_pointer_t<decltype(&::name)>>::value, #name " differs from the header");
LINKGAUGE_CUDA_API_BEFORE_12_2(LINKGAUGE_COMPARE)

}  // namespace
