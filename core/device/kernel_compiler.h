// Compiles the kernels' text for one architecture.
#pragma once

#include <string>
#include <vector>

#include "device/linked_kernels.h"

namespace linkgauge {

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  virtual std::string identity() const = 0;  // name and version; part of the cache's key
  // What is compiled for on a device of `architecture`: itself where the compiler knows it.
  virtual std::string target_for(const std::string& architecture) const { return architecture; }
  virtual std::vector<std::string> options(const std::string& target) const = 0;
  // Throws RuntimeCallError with the compiler's log.
  virtual std::string compile(const std::string& source, const std::string& target) = 0;
  // Compiles and links. Throws Unsupported with what is missing and what brings it, besides.
  virtual std::string compile_linked(const LinkedCode& code, const std::string& target) = 0;
};

}  // namespace linkgauge
