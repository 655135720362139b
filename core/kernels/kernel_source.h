// The kernels' text, embedded at build time: values.h and every .cu file of this folder, as one translation unit that
// includes nothing.
#pragma once

#include <string>
#include <vector>

namespace linkgauge {

const std::string& kernel_source();

// Every kernel that the text has for an architecture ("sm_90", "gfx90a"): all are found before any is launched.
std::vector<std::string> gpu_kernel_names(const std::string& architecture);

}  // namespace linkgauge
