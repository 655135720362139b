#include "device/gpu_kernels.h"

#include <cstdio>
#include <future>
#include <utility>

#include "base/errors.h"
#include "device/linked_kernels.h"
#include "kernels/kernel_source.h"
#include "kernels/kernels.h"

namespace linkgauge {

GpuKernels::GpuKernels(GpuModules& driver, std::function<std::unique_ptr<KernelCompiler>()> open_compiler,
                       const std::string& cache_folder)
    : driver_(driver), open_compiler_(std::move(open_compiler)), cache_(cache_folder) {}

void GpuKernels::unload() noexcept {
  for (const auto& [device, loaded] : loaded_) {
    try {
      const CurrentDevice current(driver_, device);
      for (void* module : loaded.modules) driver_.unload_module(module);
    } catch (const Error&) {
      // The context is gone already, and the module with it.
    }
  }
  loaded_.clear();
}

KernelHandle GpuKernels::find(int device, const std::string& architecture, std::string_view name) {
  const std::lock_guard lock(mutex_);
  auto loaded = loaded_.find(device);
  if (loaded == loaded_.end()) loaded = loaded_.emplace(device, load(device, architecture)).first;
  const auto found = loaded->second.by_name.find(name);
  if (found == loaded->second.by_name.end())
    throw Unsupported("there is no kernel " + std::string(name) + " for " + architecture);
  return found->second;
}

GpuKernels::Loaded GpuKernels::load(int device, const std::string& architecture) {
  const std::unique_ptr<KernelCompiler> compiler = open_compiler_();
  const std::string target = compiler->target_for(architecture);
  std::string made_by = compiler->identity() + '\n' + target + '\n';
  for (const std::string& option : compiler->options(target)) made_by += option + '\n';
  const auto image_of = [&](const KernelPart& part) {
    return cache_.find_or_compile(made_by + part.source, [&] { return compiler->compile(part.source, target); });
  };
  const std::vector<KernelPart> parts = kernel_parts(target);
  std::vector<std::future<std::string>> images;
  for (const KernelPart& part : parts)
    images.push_back(std::async(std::launch::async, [&image_of, &part] { return image_of(part); }));
  const CurrentDevice current(driver_, device);
  Loaded loaded;
  try {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      loaded.modules.push_back(
          load_image(images[i].get(), cache_.path_of(made_by + parts[i].source), [&] { return image_of(parts[i]); }));
      for (const std::string& name : parts[i].kernels) {
        loaded.by_name[name] = driver_.find_kernel(loaded.modules.back(), name.c_str(), name == kKernelCopyBulk);
      }
    }
  } catch (const Error&) {
    for (void* module : loaded.modules) driver_.unload_module(module);
    throw;
  }
  return loaded;
}

void* GpuKernels::load_image(const std::string& image, const std::string& kept_in,
                             const std::function<std::string()>& make_again) {
  try {
    return driver_.load_module(image);
  } catch (const RuntimeCallError&) {
    // The driver may refuse an image that another machine with the same home folder left: try a fresh one.
    if (kept_in.empty()) throw;
    (void)std::remove(kept_in.c_str());
    return driver_.load_module(make_again());
  }
}

namespace {

class LoadedKernels final : public LinkedKernels {
 public:
  LoadedKernels(GpuModules& driver, int device, void* module) : driver_(driver), device_(device), module_(module) {}
  ~LoadedKernels() override {
    try {
      const CurrentDevice current(driver_, device_);
      driver_.unload_module(module_);
    } catch (const Error&) {
      // The context is gone already, and the module with it.
    }
  }

  void* module() const override { return module_; }
  KernelHandle kernel(const char* name) const override {
    const CurrentDevice current(driver_, device_);
    return driver_.find_kernel(module_, name, false);
  }

 private:
  GpuModules& driver_;
  int device_;
  void* module_;
};

}  // namespace

std::unique_ptr<LinkedKernels> GpuKernels::link(int device, const std::string& architecture, const LinkedCode& code) {
  const std::unique_ptr<KernelCompiler> compiler = open_compiler_();
  const std::string target = compiler->target_for(architecture);
  const std::string key = compiler->identity() + '\n' + target + '\n' + code.made_by + '\n' + code.text;
  const auto image = [&] {
    return cache_.find_or_compile(key, [&] { return compiler->compile_linked(code, target); });
  };
  const CurrentDevice current(driver_, device);
  return std::make_unique<LoadedKernels>(driver_, device, load_image(image(), cache_.path_of(key), image));
}

}  // namespace linkgauge
