#include "device/nvml_api.h"

#include <array>

namespace linkgauge::nvml {
namespace {

constexpr unsigned kTextBytes = 96;  // above every NVML_..._BUFFER_SIZE of these calls (30, 32, 80)

template <typename Call>
std::string text_of(const Call& call) {
  std::array<char, kTextBytes> text{};
  return call(text.data(), kTextBytes - 1) == 0 ? std::string(text.data()) : std::string();
}

}  // namespace

Library::Library() {
  const SharedLibrary library({"libnvidia-ml.so.1"});
  ready_ = library && bind_symbols(library, api_.entries()).empty() && api_.nvmlInit_v2 != nullptr &&
           api_.nvmlInit_v2() == 0;
}

Facts Library::facts(const std::string& pci_address) const {
  Device device = nullptr;
  if (!ready_ || api_.nvmlDeviceGetHandleByPciBusId_v2(pci_address.c_str(), &device) != 0) return {};
  Facts facts;
  facts.serial = text_of([&](char* text, unsigned size) { return api_.nvmlDeviceGetSerial(device, text, size); });
  facts.vbios = text_of([&](char* text, unsigned size) { return api_.nvmlDeviceGetVbiosVersion(device, text, size); });
  return facts;
}

std::string Library::driver_version() const {
  if (!ready_) return {};
  return text_of([&](char* text, unsigned size) { return api_.nvmlSystemGetDriverVersion(text, size); });
}

}  // namespace linkgauge::nvml
