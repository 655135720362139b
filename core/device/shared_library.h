// A library opened at run time. Stays open for the life of the process: vendors' libraries do not unload cleanly.
#pragma once

#include <string>
#include <vector>

namespace linkgauge {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  // The first of `names` (paths, or names that the dynamic loader looks up) that opens. Not open when none does; then
  // why() says what the loader said of each.
  explicit SharedLibrary(const std::vector<std::string>& names);

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& why() const { return why_; }
  // Which file it is; the name asked for where the loader does not tell.
  const std::string& path() const { return path_; }
  void* find(const char* symbol) const;  // nullptr: not there

 private:
  void* handle_ = nullptr;
  std::string path_;
  std::string why_;
};

// One function of a table of names: where its pointer goes, and whether the library is of no use without it.
struct SymbolEntry {
  const char* name;
  void** slot;
  bool required;
};

// Fills every slot. Returns the names of the required functions that are missing, separated by ", ".
std::string bind_symbols(const SharedLibrary& library, const std::vector<SymbolEntry>& entries);

}  // namespace linkgauge
