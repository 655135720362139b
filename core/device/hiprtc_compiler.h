// hipRTC, in a child process: it aborts the process that asks for an architecture that it does not know (gfx942 with
// ROCm 5.2).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/kernel_compiler.h"

namespace linkgauge {

class HiprtcCompiler final : public KernelCompiler {
 public:
  // `library`: the file with the hiprtc functions; `child`: the program linkgauge-hiprtc. Throws Unsupported where
  // that program is missing.
  HiprtcCompiler(std::string library, std::string child);

  std::string identity() const override;
  std::vector<std::string> options(const std::string& architecture) const override;
  std::string compile(const std::string& source, const std::string& architecture) override;
  std::string compile_linked(const LinkedCode& code, const std::string& architecture) override;

 private:
  std::string library_;
  std::string child_;
};

// Where linkgauge-hiprtc is installed: beside the file that holds this code.
std::string hiprtc_child_path();

// The first hipRTC of this machine: a library of its own in newer ROCm, else the HIP runtime itself.
std::unique_ptr<KernelCompiler> open_hiprtc(const std::string& hip_library);

}  // namespace linkgauge
