// What of a case cannot be on a launch.
#pragma once

#include "base/case_spec.h"

namespace linkgauge {

// Throws CallerError where a field of `spec` is impossible for a launch of so many ranks, each of which sees so many
// devices.
void check_case(const CaseSpec& spec, int launch_size, int device_count);

}  // namespace linkgauge
