#include "device/nvjitlink.h"

#include <algorithm>
#include <filesystem>

#include "base/errors.h"
#include "base/not_copied.h"
#include "device/cuda_folders.h"

namespace linkgauge::nvjitlink {
namespace {

constexpr std::size_t kMostLog = 2000;  // of an error's one line

class Linker : NotCopied {
 public:
  Linker(const Api& api, const std::string& architecture) : api_(api) {
    const std::string option = "-arch=" + architecture;
    const char* options[] = {option.c_str()};
    run(api_.nvJitLinkCreate, &handle_, 1, options);
  }
  ~Linker() {
    if (handle_ != nullptr) (void)api_.nvJitLinkDestroy(&handle_);
  }

  std::string link(const std::string& cubin, const std::string& archive) {
    run(api_.nvJitLinkAddData, handle_, kCubin, cubin.data(), cubin.size(), "linkgauge_kernels");
    run(api_.nvJitLinkAddFile, handle_, kLibrary, archive.c_str());
    run(api_.nvJitLinkComplete, handle_);
    std::size_t size = 0;
    run(api_.nvJitLinkGetLinkedCubinSize, handle_, &size);
    std::string image(size, '\0');
    run(api_.nvJitLinkGetLinkedCubin, handle_, image.data());
    return image;
  }

 private:
  template <typename Call, typename... Given>
  void run(const Call& call, Given... given) const {
    const Result result = call(given...);
    if (result != 0) throw RuntimeCallError(call.name, "nvJitLink error", result, -1, log());
  }
  std::string log() const {
    std::size_t size = 0;
    if (handle_ == nullptr || api_.nvJitLinkGetErrorLogSize(handle_, &size) != 0 || size <= 1) return {};
    std::string text(size, '\0');
    if (api_.nvJitLinkGetErrorLog(handle_, text.data()) != 0) return {};
    text.resize(std::min(text.find('\0'), std::min(size, kMostLog)));
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }

  const Api& api_;
  Handle handle_ = nullptr;
};

}  // namespace

std::string link(const std::vector<std::string>& folders, int major, const std::string& cubin,
                 const std::string& architecture, const std::string& archive) {
  const std::string file = "libnvJitLink.so." + std::to_string(major);
  std::vector<std::string> names;
  for (const std::string& folder : cuda_library_folders(folders)) {
    std::error_code none;
    if (std::filesystem::exists(folder + "/" + file, none)) names.push_back(folder + "/" + file);
  }
  names.push_back(file);
  const SharedLibrary library(names);
  const std::string wheel = major >= 13 ? "nvidia-nvjitlink" : "nvidia-nvjitlink-cu12";
  if (!library) throw Unsupported("nothing links kernels with a library's: no " + file + "; fix: pip install " + wheel);
  Api api;
  if (const std::string missing = bind_symbols(library, api.entries()); !missing.empty())
    throw Unsupported(library.path() + " lacks " + missing + "; fix: pip install " + wheel);
  return Linker(api, architecture).link(cubin, archive);
}

}  // namespace linkgauge::nvjitlink
