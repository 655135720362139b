#include "device/hip_architecture.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

namespace linkgauge::hip {
namespace {

std::map<std::string, unsigned long long> properties_of(const std::filesystem::path& node) {
  std::map<std::string, unsigned long long> properties;
  std::ifstream file(node / "properties");
  std::string name;
  for (unsigned long long value = 0; file >> name >> value;) properties[name] = value;
  return properties;
}

}  // namespace

std::string gfx_name(unsigned target_version) {
  char text[32];
  std::snprintf(text, sizeof(text), "gfx%u%x%x", target_version / 10000, target_version / 100 % 100,
                target_version % 100);
  return text;
}

std::string architecture_of(const std::string& pci_address, const std::string& topology) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  unsigned function = 0;
  if (std::sscanf(pci_address.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) return {};
  const unsigned location = bus << 8 | device << 3 | function;
  std::error_code error;
  for (const auto& node : std::filesystem::directory_iterator(topology, error)) {
    auto properties = properties_of(node.path());
    const bool same_domain = properties.count("domain") == 0 || properties["domain"] == domain;
    if (properties["gfx_target_version"] != 0 && properties["location_id"] == location && same_domain)
      return gfx_name(static_cast<unsigned>(properties["gfx_target_version"]));
  }
  return {};
}

std::string architecture_in(const char* bytes, std::size_t size) {
  constexpr char kPrefix[] = "gfx";
  const char* end = bytes + size;
  const char* found = std::search(bytes, end, kPrefix, kPrefix + 3);
  const char* last = std::find_if(found, end, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return {found, last};
}

}  // namespace linkgauge::hip
