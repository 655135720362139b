// The tests' hold on a stand-in library: the very one that the runtime under test has opened.
#pragma once

#include <dlfcn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "device/hiprtc_compiler.h"

namespace linkgauge {

// An emulated processor runs this program, but not the one that it starts.
inline bool can_start_compiler() {
  const int status = std::system(("'" + hiprtc_child_path() + "' 2>/dev/null").c_str());
  constexpr int kUsage = 2;
  return WIFEXITED(status) && WEXITSTATUS(status) == kUsage;
}

class StandInControl {
 public:
  explicit StandInControl(const char* library) : handle_(dlopen(library, RTLD_NOW)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    if (dlsym(handle_, "stand_in_configure") == nullptr)
      throw std::runtime_error(std::string(library) + " is the vendor's own, not the stand-in");
  }
  // Back to the defaults, then what `settings` says (machine.h).
  void configure(const std::string& settings) const {
    reinterpret_cast<void (*)(const char*)>(dlsym(handle_, "stand_in_configure"))(settings.c_str());
  }
  int calls(const char* call) const {
    return reinterpret_cast<int (*)(const char*)>(dlsym(handle_, "stand_in_calls"))(call);
  }
  int count(const char* what) const { return reinterpret_cast<int (*)()>(dlsym(handle_, what))(); }
  std::string text(const char* what) const { return reinterpret_cast<const char* (*)()>(dlsym(handle_, what))(); }
  int live() const { return reinterpret_cast<int (*)()>(dlsym(handle_, "stand_in_live"))(); }

 private:
  void* handle_;
};

}  // namespace linkgauge
