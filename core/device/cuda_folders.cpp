#include "device/cuda_folders.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace linkgauge {
namespace {

void add(std::vector<std::string>& found, const std::filesystem::path& folder) {
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none)) return;
  const std::string text = folder.lexically_normal().string();
  if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
}

}  // namespace

std::vector<std::filesystem::path> cuda_toolkits() {
  std::vector<std::filesystem::path> found;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* value = std::getenv(variable); value != nullptr) found.emplace_back(value);
  }
  std::vector<std::filesystem::path> installed;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/usr/local", none)) {
    if (entry.path().filename().string().rfind("cuda", 0) == 0) installed.push_back(entry.path());
  }
  std::sort(installed.rbegin(), installed.rend());
  found.insert(found.end(), installed.begin(), installed.end());
  return found;
}

std::vector<std::string> cuda_library_folders(const std::vector<std::string>& folders) {
  std::vector<std::string> found;
  for (const std::string& folder : folders) {
    add(found, folder);
    for (const char* wheels : {"nvidia/cu13/lib", "nvidia/nvjitlink/lib"})
      add(found, std::filesystem::path(folder) / wheels);
  }
  for (const auto& toolkit : cuda_toolkits()) add(found, toolkit / "lib64");
  return found;
}

std::vector<std::string> cuda_header_folders(const std::vector<std::string>& folders) {
  std::vector<std::string> found;
  const auto with_cccl = [&](const std::filesystem::path& include) {
    add(found, include);
    add(found, include / "cccl");
  };
  for (const std::string& folder : folders) with_cccl(std::filesystem::path(folder).parent_path() / "include");
  for (const auto& toolkit : cuda_toolkits()) {
    with_cccl(toolkit / "include");
    with_cccl(toolkit / "targets/x86_64-linux/include");
    with_cccl(toolkit / "targets/sbsa-linux/include");
  }
  return found;
}

std::string found_in(const std::vector<std::string>& folders, const std::string& file) {
  std::error_code none;
  for (const std::string& folder : folders) {
    if (std::filesystem::exists(std::filesystem::path(folder) / file, none)) return folder + "/" + file;
  }
  return {};
}

}  // namespace linkgauge
