// The kernels' texts, embedded at build time: each .cu file of this folder behind the headers that all share, as a
// translation unit that includes nothing.
#pragma once

#include <string>
#include <vector>

namespace linkgauge {

// Compiled by itself, so that several compile at once: together they take 7.5 s of a processor beside H200, the longest
// a third of that.
struct KernelPart {
  std::string source;
  std::vector<std::string> kernels;  // that it has for the architecture
};

// Every part that has a kernel for an architecture ("sm_90", "gfx90a"): all are loaded before any is launched.
std::vector<KernelPart> kernel_parts(const std::string& architecture);

// The text that has a kernel which calls a library's device code, as that is compiled: behind the library's own
// headers.
std::string linked_text(const std::string& kernel);

}  // namespace linkgauge
