// Where to look for a library of which a process has one only.
#pragma once

#include <string>
#include <vector>

namespace linkgauge {

// `file`, to be opened by its name where the process has it already, since two of one name cannot be told apart by what
// they load (an MPI library may have brought one); else that in `folders`, then by the loader's own search.
std::vector<std::string> one_a_process(const char* file, const std::vector<std::string>& folders);

}  // namespace linkgauge
