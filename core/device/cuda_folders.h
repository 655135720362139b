// Where CUDA's toolkit and its wheels put libraries and headers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace linkgauge {

// Those that the environment names, then those in /usr/local, newest first.
std::vector<std::filesystem::path> cuda_toolkits();
// `folders` (those of wheels' libraries) first, then the toolkits', newest first. Those that are there.
std::vector<std::string> cuda_library_folders(const std::vector<std::string>& folders);
// Folders of headers that belong to these, and CCCL's below them.
std::vector<std::string> cuda_header_folders(const std::vector<std::string>& folders);
// The first of `folders` that has `file`, with it; "" where none has.
std::string found_in(const std::vector<std::string>& folders, const std::string& file);

}  // namespace linkgauge
