#include "transport/ccl_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "errors.h"

namespace linkgauge::ccl {
namespace {

struct Field {
  std::string_view name;
  const char* variable;
  int since;
  int Config::*number;  // nullptr: netName
};

constexpr std::array<Field, 10> kFields = {{
    {"cgaClusterSize", "NCCL_CGA_CLUSTER_SIZE", 21700, &Config::cgaClusterSize},
    {"minCTAs", "NCCL_MIN_CTAS", 21700, &Config::minCTAs},
    {"maxCTAs", "NCCL_MAX_CTAS", 21700, &Config::maxCTAs},
    {"netName", "NCCL_NET", 21700, nullptr},
    {"trafficClass", "NCCL_IB_TC", 22600, &Config::trafficClass},
    {"collnetEnable", "NCCL_COLLNET_ENABLE", 22700, &Config::collnetEnable},
    {"CTAPolicy", "NCCL_CTA_POLICY", 22700, &Config::CTAPolicy},
    {"nvlsCTAs", "NCCL_NVLS_NCHANNELS", 22700, &Config::nvlsCTAs},
    {"nChannelsPerNetPeer", "NCCL_NCHANNELS_PER_NET_PEER", 22800, &Config::nChannelsPerNetPeer},
    {"nvlinkCentricSched", "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", 22800, &Config::nvlinkCentricSched},
}};
constexpr std::string_view kDefault = "default";
constexpr int kMostBlocks = 64;  // NCCL's own most; one that has fewer takes these

const Field& field_of(const std::string& name, const std::string& product) {
  for (const Field& field : kFields) {
    if (name == field.name || name == field.variable) return field;
  }
  std::string known;
  for (const Field& field : kFields) known += (known.empty() ? "" : ", ") + std::string(field.variable);
  throw Unsupported(name + " is no setting of a communicator of " + product + ": expected one of " + known +
                    "; others are --env, of a launch");
}

int number_of(const Field& field, const std::string& value) {
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc{} && end == value.data() + value.size() && number != kUnset) return number;
  throw Unsupported(std::string(field.variable) + "=" + value + ": expected a whole number or default");
}

}  // namespace

std::vector<std::pair<std::string, int>> config_variables() {
  std::vector<std::pair<std::string, int>> found;
  for (const Field& field : kFields) found.emplace_back(field.variable, field.since);
  return found;
}

Configuration::Configuration(const Library& library, const std::string& settings) {
  if (library.product() != Product::kNccl)
    throw Unsupported(std::string(library.name()) + " takes no settings of a case's own here: give them by --env");
  const std::string product = "NCCL " + library.version();
  if (library.calls().ncclCommInitRankConfig == nullptr)
    throw Unsupported(product + " has no configuration of a communicator: NCCL 2.17 or newer is needed");
  config_.size = sizeof config_;
  config_.magic = kConfigMagic;
  config_.version = static_cast<unsigned>(std::min(library.version_code(), kConfigVersion));
  config_.blocking = config_.splitShare = config_.shrinkShare = kUnset;
  for (const Field& field : kFields) {
    if (field.number != nullptr) config_.*field.number = kUnset;
  }
  for (const auto& [name, value] : settings_of(settings)) {
    const Field& field = field_of(name, product);
    if (library.version_code() < field.since) {
      throw Unsupported(product + " takes no " + std::string(field.name) + " of a communicator: NCCL " +
                        version_text(field.since) + " or newer is needed");
    }
    if (std::getenv(field.variable) != nullptr) {
      throw Unsupported("the environment's " + std::string(field.variable) +
                        " wins over a communicator's: leave it out of --env");
    }
    if (field.number == nullptr) {
      net_ = value == kDefault ? "" : value;
    } else {
      config_.*field.number = value == kDefault ? kUnset : number_of(field, value);
    }
  }
  config_.netName = net_.empty() ? nullptr : net_.c_str();
  // NCCL compares both as they are given, so that a least number without a most is refused.
  if (config_.minCTAs != kUnset && config_.maxCTAs == kUnset) config_.maxCTAs = std::max(config_.minCTAs, kMostBlocks);
}

}  // namespace linkgauge::ccl
