// Libraries opened at run time, each with a table of the names and signatures that are used of it. A library stays open
// for the life of the process: vendors' libraries do not unload cleanly.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

namespace linkgauge {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  // The first of `names` (paths, or names that the dynamic loader looks up) that opens. Not open when none does; then
  // why() says what the loader said of each.
  explicit SharedLibrary(const std::vector<std::string>& names);
  // The library of that path where the process has it open, else not open.
  static SharedLibrary already_open(const std::string& path);

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

// `file` in each of `folders`, then by the loader's own search.
std::vector<std::string> names_in(const std::vector<std::string>& folders, const std::string& file);
// The same of a library of which a process has one: by its name alone where the process has it already, since two of
// one name cannot be told apart by what they load (an MPI library may have brought one).
std::vector<std::string> one_a_process(const std::string& file, const std::vector<std::string>& folders);

// One function of a table: where the library has it, and what errors call it.
template <typename Signature>
struct Symbol;
template <typename Result, typename... Parameters>
struct Symbol<Result(Parameters...)> {
  Result (*function)(Parameters...) = nullptr;  // nullptr: the library has none
  const char* name = "";
  Result operator()(Parameters... given) const { return function(given...); }
  bool operator==(std::nullptr_t) const { return function == nullptr; }
};

// Where a function's pointer goes, and whether the library is of no use without it.
struct SymbolEntry {
  const char* name;
  void** slot;
  bool required;
};

// Fills every slot that is empty. Returns the names of the required functions that are missing, separated by ", ".
std::string bind_symbols(const SharedLibrary& library, const std::vector<SymbolEntry>& entries);

// A table's members and entries(), of a list API(REQUIRED, OPTIONAL) of (name, signature).
#define LINKGAUGE_SYMBOL_MEMBER(name, ...) linkgauge::Symbol<__VA_ARGS__> name{nullptr, #name};
#define LINKGAUGE_SYMBOL_REQUIRED(name, ...) {#name, reinterpret_cast<void**>(&name.function), true},
#define LINKGAUGE_SYMBOL_OPTIONAL(name, ...) {#name, reinterpret_cast<void**>(&name.function), false},
#define LINKGAUGE_SYMBOL_TABLE(API)                     \
  API(LINKGAUGE_SYMBOL_MEMBER, LINKGAUGE_SYMBOL_MEMBER) \
  std::vector<SymbolEntry> entries() { return {API(LINKGAUGE_SYMBOL_REQUIRED, LINKGAUGE_SYMBOL_OPTIONAL)}; }

// Opens the first of `names` and fills its table. Throws Unsupported: "NAME was not found", with the loader's words
// where there is no fix, or "NAME at PATH is too old: it lacks A, B"; then the fix.
struct LibraryTexts {
  std::string name;   // "UCX"
  std::string found;  // "UCX (libucp.so.0)"
  std::string fix;    // "; fix: pip install libucx-cu12"
};
SharedLibrary open_library(const std::vector<std::string>& names, const std::vector<SymbolEntry>& entries,
                           const LibraryTexts& texts);

// A library of which this process opens one, with its table. A class of its own says what that is.
template <typename Library, typename Symbols>
class OneLibrary {
 public:
  // Library(folders) as it was made when it was first asked for without failing, whatever would be found now. Throws
  // Unsupported with the reason.
  static const Library& load(const std::vector<std::string>& folders) {
    static std::mutex mutex;
    static std::unique_ptr<Library> opened;
    const std::lock_guard lock(mutex);
    if (!opened) opened.reset(new Library(folders));
    return *opened;
  }
  const Symbols& calls() const { return table_; }
  // Calls a function of the table; throws as Library::check does, which gets what it returned and its name.
  template <typename Call, typename... Given>
  void run(const Call& call, Given... given) const {
    static_cast<const Library*>(this)->check(call(given...), call.name);
  }
  const std::string& path() const { return library_.path(); }

 protected:
  OneLibrary(const std::vector<std::string>& names, const LibraryTexts& texts)
      : library_(open_library(names, table_.entries(), texts)) {}

  Symbols table_;
  SharedLibrary library_;  // fills the table
};

}  // namespace linkgauge
