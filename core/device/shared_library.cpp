#include "device/shared_library.h"

#include <dlfcn.h>
#include <link.h>

namespace linkgauge {

SharedLibrary::SharedLibrary(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    // RTLD_LOCAL: two versions of one vendor library (a wheel's and the system's) must not see each other's symbols.
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = name;
      link_map* map = nullptr;
      if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr &&
          map->l_name[0] != '\0') {
        path_ = map->l_name;
      }
      return;
    }
    const char* reason = dlerror();
    if (!why_.empty()) why_ += "; ";
    why_ += reason != nullptr ? reason : name + ": cannot be opened";
  }
}

void* SharedLibrary::find(const char* symbol) const { return handle_ == nullptr ? nullptr : dlsym(handle_, symbol); }

std::string bind_symbols(const SharedLibrary& library, const std::vector<SymbolEntry>& entries) {
  std::string missing;
  for (const SymbolEntry& entry : entries) {
    *entry.slot = library.find(entry.name);
    if (*entry.slot == nullptr && entry.required) {
      if (!missing.empty()) missing += ", ";
      missing += entry.name;
    }
  }
  return missing;
}

}  // namespace linkgauge
