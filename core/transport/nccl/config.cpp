#include "transport/nccl/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/errors.h"

namespace linkgauge::ccl {
namespace {

struct Field {
  std::string_view name;
  const char* variable;
  int since;
  int Config::*number;  // nullptr: a word
};

constexpr int kCalls = 23200;  // the first that takes settings of a call
constexpr std::array<Field, 13> kFields = {{
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
    {"", "NCCL_ALGO", kCalls, nullptr},
    {"", "NCCL_PROTO", kCalls, nullptr},
    {"algSelection", "", kCalls, nullptr},
}};
constexpr std::string_view kDefault = "default";
constexpr int kMostBlocks = 64;  // NCCL's own most; one that has fewer takes these

// NCCL's algorithms, as NCCL_ALGO and algSelection write them, and whether it has each of its protocols.
struct Algorithm {
  std::string_view variable;
  std::string_view selection;
  bool every_protocol;
};
constexpr std::array<Algorithm, 7> kAlgorithms = {{
    {"tree", "TREE", true},
    {"ring", "RING", true},
    {"collnetdirect", "COLLNET_DIRECT", false},
    {"collnetchain", "COLLNET_CHAIN", false},
    {"nvls", "NVLS", false},
    {"nvlstree", "NVLSTREE", false},
    {"pat", "PAT", false},
}};
constexpr std::array<std::string_view, 3> kProtocols = {"ll", "ll128", "simple"};

std::string in_case(std::string text, int (*to)(int)) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [to](unsigned char one) { return static_cast<char>(to(one)); });
  return text;
}

// Words of a list as NCCL_ALGO and NCCL_PROTO have it; empty: all.
std::vector<std::string> words_of(const std::string& variable, const std::string& text) {
  std::vector<std::string> words;
  if (text == kDefault) return words;
  std::istringstream listed(text);
  for (std::string word; std::getline(listed, word, ',');) {
    words.push_back(in_case(word, std::tolower));
    const auto is_it = [&](const Algorithm& one) { return one.variable == words.back(); };
    const bool known = variable == "NCCL_ALGO"
                           ? std::any_of(kAlgorithms.begin(), kAlgorithms.end(), is_it)
                           : std::find(kProtocols.begin(), kProtocols.end(), words.back()) != kProtocols.end();
    if (!known)
      throw Unsupported(variable + "=" + text + ": a call takes names with ',' between them, not '" + word + "'");
  }
  return words;
}

const Field& field_of(const std::string& name, const std::string& product) {
  for (const Field& field : kFields) {
    if (name == field.name || name == field.variable) return field;
  }
  std::string known;
  for (const Field& field : kFields)
    known += (known.empty() ? "" : ", ") + std::string(*field.variable != '\0' ? field.variable : field.name);
  throw Unsupported(name + " is no setting of a communicator or call of " + product + ": expected one of " + known +
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
  for (const Field& field : kFields) {
    if (*field.variable != '\0') found.emplace_back(field.variable, field.since);
  }
  return found;
}

std::string selection_of(const std::string& algorithms, const std::string& protocols) {
  const std::vector<std::string> some = words_of("NCCL_ALGO", algorithms);
  const std::vector<std::string> ways = words_of("NCCL_PROTO", protocols);
  const auto among = [](const std::vector<std::string>& chosen, std::string_view one) {
    return chosen.empty() || std::find(chosen.begin(), chosen.end(), one) != chosen.end();
  };
  std::string found;
  for (const Algorithm& algorithm : kAlgorithms) {
    for (const std::string_view protocol : kProtocols) {
      if (!among(some, algorithm.variable) || !among(ways, protocol)) continue;
      if (!algorithm.every_protocol && protocol != "simple") continue;
      if (!found.empty()) found += ',';
      found.append(algorithm.selection).append("_").append(in_case(std::string(protocol), std::toupper));
    }
  }
  if (found.empty()) throw Unsupported("no algorithm of NCCL_ALGO=" + algorithms + " has NCCL_PROTO=" + protocols);
  return found;
}

Configuration::Configuration(const Library& library, const std::string& settings) : text_(settings) {
  if (library.product() != Product::kNccl)
    throw Unsupported(std::string(library.name()) + " takes no settings of a case's own here: give them by --env");
  const std::string product = "NCCL " + library.version();
  if (library.calls().ncclCommInitRankConfig == nullptr)
    throw Unsupported(product + " has no configuration of a communicator: NCCL 2.17 or newer is needed");
  config_.size = sizeof config_;
  config_.magic = call_.magic = kConfigMagic;
  config_.version = static_cast<unsigned>(std::min(library.version_code(), kConfigVersion));
  config_.blocking = config_.splitShare = config_.shrinkShare = kUnset;
  call_.size = sizeof call_;
  call_.version = kCallConfigVersion;
  call_.minCTAs = call_.maxCTAs = call_.nvlsCTAs = call_.cgaClusterSize = kUnset;
  call_.CTAPolicy = kUnset;
  call_.forceAlgSelection = 1;  // what cannot be had is an error, not another algorithm; "unset" it does not take
  for (const Field& field : kFields) {
    if (field.number != nullptr) config_.*field.number = kUnset;
  }
  std::string algorithms;
  std::string protocols;
  for (const auto& [name, value] : settings_of(settings)) {
    const Field& field = field_of(name, product);
    if (library.version_code() < field.since) {
      throw Unsupported(product + " takes no " + name + " of a " + (field.since == kCalls ? "call" : "communicator") +
                        ": NCCL " + version_text(field.since) + " or newer is needed");
    }
    if (*field.variable != '\0' && std::getenv(field.variable) != nullptr) {
      throw Unsupported("the environment's " + std::string(field.variable) +
                        " wins over a case's own: leave it out of --env");
    }
    communicators_ = communicators_ || field.since != kCalls;
    const std::string word = value == kDefault ? "" : value;
    if (field.number != nullptr) {
      config_.*field.number = value == kDefault ? kUnset : number_of(field, value);
    } else if (name == "NCCL_ALGO") {
      algorithms = word;
    } else if (name == "NCCL_PROTO") {
      protocols = word;
    } else {
      (field.since == kCalls ? selection_ : net_) = word;
    }
  }
  if (!algorithms.empty() || !protocols.empty()) {
    if (!selection_.empty()) throw Unsupported("algSelection says what NCCL_ALGO and NCCL_PROTO say: leave one out");
    selection_ = selection_of(algorithms, protocols);
  }
  config_.netName = net_.empty() ? nullptr : net_.c_str();
  call_.algSelection = selection_.empty() ? nullptr : selection_.c_str();
  // NCCL compares both as they are given, so that a least number without a most is refused.
  if (config_.minCTAs != kUnset && config_.maxCTAs == kUnset) config_.maxCTAs = std::max(config_.minCTAs, kMostBlocks);
}

}  // namespace linkgauge::ccl
