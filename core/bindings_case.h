// A case as Python's dict, by the names of its parts' fields (case_spec.h).
#pragma once

#include <nanobind/nanobind.h>

#include "base/case_spec.h"

namespace linkgauge {

// Throws CallerError naming an unknown key, a missing one (transport, pattern, size_bytes, rank_list, devices), or a
// value of a wrong type.
CaseSpec case_from(const nanobind::dict& fields);

}  // namespace linkgauge
