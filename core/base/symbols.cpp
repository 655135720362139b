#include "base/symbols.h"

#include <dlfcn.h>
#include <link.h>

#include "base/errors.h"

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

SharedLibrary SharedLibrary::already_open(const std::string& path) {
  SharedLibrary library;
  library.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);  // counts uses: it stays
  library.path_ = path;
  return library;
}

void* SharedLibrary::find(const char* symbol) const { return handle_ == nullptr ? nullptr : dlsym(handle_, symbol); }

std::vector<std::string> names_in(const std::vector<std::string>& folders, const std::string& file) {
  std::vector<std::string> names;
  for (const std::string& folder : folders) names.push_back(folder + "/" + file);
  names.push_back(file);
  return names;
}

std::vector<std::string> one_a_process(const std::string& file, const std::vector<std::string>& folders) {
  return SharedLibrary::already_open(file) ? std::vector{file} : names_in(folders, file);
}

std::string bind_symbols(const SharedLibrary& library, const std::vector<SymbolEntry>& entries) {
  std::string missing;
  for (const SymbolEntry& entry : entries) {
    if (*entry.slot == nullptr) *entry.slot = library.find(entry.name);
    if (*entry.slot == nullptr && entry.required) {
      if (!missing.empty()) missing += ", ";
      missing += entry.name;
    }
  }
  return missing;
}

SharedLibrary open_library(const std::vector<std::string>& names, const std::vector<SymbolEntry>& entries,
                           const LibraryTexts& texts) {
  SharedLibrary library(names);
  if (!library) {
    throw Unsupported(texts.found + " was not found" + (texts.fix.empty() ? ": " + library.why() : texts.fix));
  }
  if (const std::string missing = bind_symbols(library, entries); !missing.empty())
    throw Unsupported(texts.name + " at " + library.path() + " is too old: it lacks " + missing + texts.fix);
  return library;
}

}  // namespace linkgauge
