// A fixture for what both vendors' runtimes do alike, each over its stand-in driver and with a kernel cache of its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <ostream>
#include <string>

#include "device/device_runtime.h"
#include "stand_in_control.h"

namespace linkgauge {

// A test's own parameter adds the calls that it counts.
struct Vendor {
  const char* which;
  const char* library;
};
inline std::ostream& operator<<(std::ostream& out, const Vendor& vendor) { return out << vendor.which; }

template <typename Parameter>
class OnVendors : public testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (!cuda() && !can_start_compiler()) GTEST_SKIP() << "this machine cannot start linkgauge-hiprtc";
    cache_ = std::filesystem::temp_directory_path() / ("linkgauge_on_vendors_" + std::to_string(getpid()));
  }
  void TearDown() override {
    control_.configure("");
    std::filesystem::remove_all(cache_);
  }

  // `settings`: of the machine that the driver shows (machine.h).
  std::shared_ptr<DeviceRuntime> open(const std::string& settings = "") const {
    control_.configure(settings);
    RuntimeRequest request;
    request.which = this->GetParam().which;
    request.kernel_cache = cache_.string();
    request.library_folders = {std::string(LINKGAUGE_STAND_IN_FOLDER) + "/nvrtc12"};
    return open_runtime(request);
  }
  bool cuda() const { return std::string(this->GetParam().which) == "cuda"; }

  StandInControl control_{this->GetParam().library};
  std::filesystem::path cache_;
};

}  // namespace linkgauge
