#include "device/nvrtc_compiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/errors.h"
#include "device/cuda_folders.h"
#include "device/nvjitlink.h"
#include "kernels/kernel_source.h"

namespace linkgauge {
namespace {

constexpr std::array<int, 3> kMajors{13, 12, 11};
constexpr char kPtxPrefix[] = "compute_";
// C's headers that libraries' device headers include and NVRTC has not, with what such code takes of them.
constexpr std::array<rtc::Header, 4> kHeadersOfC{{
    {"stdint.h", "#include <cuda/std/cstddef>\n#include <cuda/std/cstdint>\n"},
    {"stdbool.h", ""},
    {"stdlib.h", ""},
    {"limits.h", ""},
}};

// NVRTC opens libnvrtc-builtins by its bare name and finds it only where the loader looks: open the one that lies
// beside it first.
void open_builtins(const std::string& nvrtc_path) {
  const std::filesystem::path folder = std::filesystem::path(nvrtc_path).parent_path();
  if (folder.empty()) return;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (file.rfind("libnvrtc-builtins.so", 0) == 0) (void)dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

void add_folder(std::vector<std::string>& found, const std::filesystem::path& folder) {
  std::error_code error;
  for (const int major : kMajors) {
    const std::filesystem::path file = folder / ("libnvrtc.so." + std::to_string(major));
    const std::filesystem::path oldest = folder / "libnvrtc.so.11.2";  // CUDA 11 named its file so
    if (std::filesystem::exists(file, error)) found.push_back(file.string());
    if (major == 11 && std::filesystem::exists(oldest, error)) found.push_back(oldest.string());
  }
}

}  // namespace

NvrtcCompiler::NvrtcCompiler(const std::string& path, std::vector<std::string> folders) : folders_(std::move(folders)) {
  open_builtins(path);
  const SharedLibrary library({path});
  if (!library) throw Unsupported(library.why());
  open_builtins(library.path());
  const std::string missing = bind_symbols(library, api_.nvrtc_entries());
  if (!missing.empty()) throw Unsupported(library.path() + " lacks " + missing);
  if (api_.version(&major_, &minor_) != 0) throw Unsupported(library.path() + " does not tell its version");
}

std::string NvrtcCompiler::identity() const { return "NVRTC " + std::to_string(major_) + "." + std::to_string(minor_); }

// Code for exactly the device's architecture, not PTX that the driver would compile again at each start, where there is
// a choice.
std::string NvrtcCompiler::target_for(const std::string& architecture) const {
  int count = 0;
  if (api_.architecture_count == nullptr || api_.architecture_count(&count) != 0 || count <= 0) return architecture;
  std::vector<int> known(static_cast<std::size_t>(count));
  if (api_.architectures(known.data()) != 0) return architecture;
  const int newest = *std::max_element(known.begin(), known.end());
  return cuda_architecture(architecture) > newest ? kPtxPrefix + std::to_string(newest) : architecture;
}

std::vector<std::string> NvrtcCompiler::options(const std::string& target) const {
  return {"--gpu-architecture=" + target, "--std=c++17"};
}

std::string NvrtcCompiler::compile(const std::string& source, const std::string& target) {
  const rtc::Kind kind = target.rfind(kPtxPrefix, 0) == 0 ? rtc::Kind::kPtx : rtc::Kind::kCode;
  return rtc::compile(api_, "nvrtcCompileProgram", source, options(target), kind);
}

std::string NvrtcCompiler::compile_linked(const LinkedCode& code, const std::string& target) {
  std::vector<std::string> headers = cuda_header_folders(folders_);
  if (!code.folder.empty()) headers.insert(headers.begin(), code.folder);
  const bool links = !code.archive.empty();
  const std::string archive = links ? found_in(cuda_library_folders(folders_), code.archive) : std::string();
  const std::string missing = links && archive.empty()                 ? code.archive
                              : found_in(headers, code.header).empty() ? code.header
                                                                       : std::string();
  if (!missing.empty()) {
    throw Unsupported(missing + " was not found, with which kernels for " + code.made_by +
                      " are made; fix: " + code.fix);
  }
  const std::string suffix = major_ >= 13 ? "" : "-cu12";
  for (const auto& [file, wheel] : {std::pair{"cuda_fp16.h", "runtime"}, std::pair{"cuda/std/cstdint", "cccl"}}) {
    if (!found_in(headers, file).empty()) continue;
    throw Unsupported(std::string("CUDA's header ") + file + " was not found, which " + code.header +
                      " includes; fix: pip install nvidia-cuda-" + wheel + suffix);
  }
  std::vector<std::string> given = options(target);
  given.emplace_back("--device-as-default-execution-space");
  if (links) given.emplace_back("--relocatable-device-code=true");
  for (const std::string& folder : headers) given.push_back("--include-path=" + folder);
  const std::string cubin = rtc::compile(api_, "nvrtcCompileProgram", code.text, given, rtc::Kind::kCode, kHeadersOfC);
  return links ? nvjitlink::link(folders_, major_, cubin, target, archive) : cubin;
}

std::vector<std::string> nvrtc_candidates(const std::vector<std::string>& folders) {
  std::vector<std::string> found;
  for (const std::string& folder : folders) {
    add_folder(found, folder);
    add_folder(found, std::filesystem::path(folder) / "nvidia/cu13/lib");        // wheel nvidia-cuda-nvrtc
    add_folder(found, std::filesystem::path(folder) / "nvidia/cuda_nvrtc/lib");  // wheel nvidia-cuda-nvrtc-cu12
  }
  for (const int major : kMajors) found.push_back("libnvrtc.so." + std::to_string(major));
  found.emplace_back("libnvrtc.so.11.2");
  for (const auto& toolkit : cuda_toolkits()) add_folder(found, toolkit / "lib64");
  return found;
}

std::unique_ptr<KernelCompiler> open_nvrtc(const std::vector<std::string>& folders, int supported_version) {
  const int driver_major = supported_version / 1000;
  std::string too_new;
  for (const std::string& path : nvrtc_candidates(folders)) {
    try {
      auto compiler = std::make_unique<NvrtcCompiler>(path, folders);
      if (compiler->major() <= driver_major) return compiler;
      if (!too_new.empty()) too_new += ", ";
      too_new += compiler->identity() + " (" + path + ")";
    } catch (const Unsupported&) {
      // Not there, or not usable: the next one may be.
    }
  }
  const std::string wanted = driver_major >= 13 ? "nvidia-cuda-nvrtc" : "nvidia-cuda-nvrtc-cu12";
  if (!too_new.empty())
    throw Unsupported("kernels cannot be compiled: the driver supports CUDA " + std::to_string(driver_major) +
                      ", and only newer compilers are here: " + too_new + "; install the wheel " + wanted);
  throw Unsupported("kernels cannot be compiled: no NVRTC was found; install the wheel " + wanted);
}

}  // namespace linkgauge
