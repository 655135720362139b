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

// Every part that has a kernel for what is compiled for ("sm_90", "compute_90", "gfx90a"): all are loaded before any is
// launched.
std::vector<KernelPart> kernel_parts(const std::string& target);

// 90 of "sm_90" and "compute_90"; 0 of what is no NVIDIA GPU's.
int cuda_architecture(const std::string& target);

// The text that has a kernel which calls a library's device code, as that is compiled: behind the library's own
// headers, with the shared ones where it asks for them.
std::string linked_text(const std::string& kernel);

}  // namespace linkgauge
