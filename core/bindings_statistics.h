// The statistics of the stop rule, and what takes the cores away, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace linkgauge {

void bind_statistics(nanobind::module_& module);

}  // namespace linkgauge
