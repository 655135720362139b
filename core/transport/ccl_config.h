// A communicator's own configuration (ncclConfig_t), of a case's settings: what NCCL otherwise reads from its
// environment once a process, so that communicators of one launch may differ in it.
#pragma once

#include <climits>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "transport/ccl_api.h"

namespace linkgauge::ccl {

// ncclConfig_t as NCCL 2.28 has it. Fields are only ever added at the end: an older library reads as many bytes as it
// knows, a newer one sees by `version` which were not yet there.
struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
};
inline constexpr unsigned kConfigMagic = 0xcafebeef;
inline constexpr int kConfigVersion = 22800;  // of the structure above
inline constexpr int kUnset = INT_MIN;        // NCCL_CONFIG_UNDEF_INT

// The settings of a communicator's own by the variables that mean the same, and the first version of each as
// ncclGetVersion codes it.
std::vector<std::pair<std::string, int>> config_variables();

class Configuration {
 public:
  // `settings`: "NAME=VALUE NAME=VALUE", a name being NCCL's variable or its field of the structure, the value a whole
  // number (netName: a word), or "default". Throws Unsupported with the reason where the library has none of it, or
  // its environment says something, which would win.
  Configuration(const Library& library, const std::string& settings);
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;

  Config* get() { return &config_; }

 private:
  Config config_{};
  std::string net_;
};

}  // namespace linkgauge::ccl
