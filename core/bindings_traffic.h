// What traffic/ knows, for Python: which bytes go from whom to whom.
#pragma once

#include <nanobind/nanobind.h>

namespace linkgauge {

void bind_traffic(nanobind::module_& module);

}  // namespace linkgauge
