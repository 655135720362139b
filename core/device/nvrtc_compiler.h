// NVRTC, wherever this machine has it: the system's loader path, CUDA's folders, or a wheel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/kernel_compiler.h"
#include "device/rtc_api.h"

namespace linkgauge {

class NvrtcCompiler final : public KernelCompiler {
 public:
  // Opens one NVRTC file. Throws Unsupported saying why it is of no use.
  // `folders`: of libraries, of which those that are linked with, and headers beside them, may be.
  explicit NvrtcCompiler(const std::string& path, std::vector<std::string> folders = {});

  int major() const { return major_; }
  std::string identity() const override;
  // Of a device newer than the compiler "compute_NN", the newest that it knows: PTX, which the driver compiles on.
  std::string target_for(const std::string& architecture) const override;
  std::vector<std::string> options(const std::string& target) const override;
  std::string compile(const std::string& source, const std::string& target) override;
  std::string compile_linked(const LinkedCode& code, const std::string& target) override;

 private:
  rtc::Api api_;
  std::vector<std::string> folders_;
  int major_ = 0;
  int minor_ = 0;
};

// Where NVRTC may be, in the order of trying: newest version first, wheels in `folders` before the system's.
std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& folders);

// The first that opens and whose major version the driver can load code of (`supported_version` as cuDriverGetVersion
// counts). Throws Unsupported naming what was found and why it does not serve, and the wheel that would.
std::unique_ptr<KernelCompiler> open_nvrtc(const std::vector<std::string>& folders, int supported_version);

}  // namespace linkgauge
