// The table of nvJitLink against the vendor's own header. Nothing runs: a difference does not compile.
#include "device/nvjitlink.h"
//
#include <nvJitLink.h>

#include "same_abi.h"

namespace {

using namespace linkgauge;             // NOLINT
using namespace linkgauge::nvjitlink;  // NOLINT: the types that the table's macro names

#define LINKGAUGE_COMPARE(name, type) \
  static_assert(SameAbi<type, std::remove_pointer_t<decltype(&::name)>>::value, #name " differs from the header");
LINKGAUGE_NVJITLINK_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE)

static_assert(kCubin == NVJITLINK_INPUT_CUBIN);
static_assert(kLibrary == NVJITLINK_INPUT_LIBRARY);

}  // namespace
