// What NCCL takes of a case's settings: a communicator's own configuration (ncclConfig_t) and, from 2.32 on, a call's
// (ncclCollConfig_t). NCCL otherwise reads the same from its environment once a process, so that cases of one launch
// could not differ in it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/not_copied.h"
#include "transport/nccl/api.h"
#include "transport/nccl/structures.h"

namespace linkgauge::ccl {

// The settings of a case's own by the variables that mean the same, and the first version of each as ncclGetVersion
// codes it.
std::vector<std::pair<std::string, int>> config_variables();

// algSelection's names of the algorithms and protocols that NCCL_ALGO and NCCL_PROTO would leave to choose among, ","
// between them. Either may be "" or "default": all. Throws Unsupported where a word is none of them, or where none is
// left.
std::string selection_of(const std::string& algorithms, const std::string& protocols);

class Configuration : NotCopied {
 public:
  // `settings`: "NAME=VALUE NAME=VALUE", a name being NCCL's variable or its field of the structures, the value a whole
  // number (netName, algSelection, NCCL_ALGO, NCCL_PROTO: words), or "default". Throws Unsupported with the reason
  // where the library has none of it, or its environment says something, which would win.
  Configuration(const Library& library, const std::string& settings);

  const std::string& text() const { return text_; }
  // nullptr: they say nothing of a communicator, or of a call.
  const Config* of_communicator() const { return communicators_ ? &config_ : nullptr; }
  const CallConfig* of_call() const { return call_.algSelection != nullptr ? &call_ : nullptr; }

 private:
  std::string text_;
  Config config_{};
  CallConfig call_{};
  bool communicators_ = false;
  std::string net_;
  std::string selection_;
};

}  // namespace linkgauge::ccl
