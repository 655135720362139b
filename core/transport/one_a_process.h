// A library of which a process has one only: where to look for it, and that it is opened once.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace linkgauge {

// `file`, to be opened by its name where the process has it already, since two of one name cannot be told apart by what
// they load (an MPI library may have brought one); else that in `folders`, then by the loader's own search.
std::vector<std::string> one_a_process(const char* file, const std::vector<std::string>& folders);

// What `open` gave when it was first called without throwing, whatever it would give now.
template <typename Library, typename Open>
const Library& opened_once(const Open& open) {
  static std::mutex mutex;
  static std::unique_ptr<Library> opened;
  const std::lock_guard lock(mutex);
  if (!opened) opened = open();
  return *opened;
}

}  // namespace linkgauge
