// Kernels that call a vendor's device library: compiled with its headers, linked with its code where that is not all in
// them, loaded apart from ours.
#pragma once

#include <string>
#include <vector>

#include "base/not_copied.h"
#include "device/device_runtime.h"

namespace linkgauge {

// What such kernels are made from.
struct LinkedCode {
  std::string text;     // device source, which includes `header`
  std::string folder;   // of headers, searched before all others; "": none
  std::string header;   // the library's: the folder that has it is searched, and CUDA's own
  std::string archive;  // the library's device code; "": all of it is in headers
  std::string made_by;  // the library and its version: part of the cache's key
  std::string fix;      // what brings header and archive
};

// Such kernels on one device. Never outlives its runtime.
class LinkedKernels : NotCopied {
 public:
  virtual ~LinkedKernels() = default;

  virtual void* module() const = 0;                         // as the vendor's driver names it
  virtual KernelHandle kernel(const char* name) const = 0;  // throws RuntimeCallError where there is none
};

}  // namespace linkgauge
