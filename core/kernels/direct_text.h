// The text of the direct allreduce as C++: what direct.h needs comes before it, since none of these includes another.
#pragma once

// clang-format off
#include "kernels/values.h"
#include "kernels/elements.h"
#include "kernels/direct.h"
// clang-format on
