// Which gfx architecture an AMD GPU is. HIP tells it only inside hipDeviceProp_t, whose layout differs between
// versions; the kernel driver tells it too.
#pragma once

#include <cstddef>
#include <string>

namespace linkgauge::hip {

// 90010 -> "gfx90a": major * 10000 + minor * 100 + stepping, the latter two in hexadecimal digits.
std::string gfx_name(unsigned target_version);

// Of the GPU at that PCI address ("0000:c1:00.0"), from the nodes below `topology`; empty where that does not tell.
std::string architecture_of(const std::string& pci_address,
                            const std::string& topology = "/sys/class/kfd/kfd/topology/nodes");

// The first "gfx..." in the bytes of a hipDeviceProp_t of any version, without its features (":sramecc+:xnack-").
std::string architecture_in(const char* bytes, std::size_t size);

}  // namespace linkgauge::hip
