// Compiled kernels kept between processes: one file an image, named by what it was made from.
#pragma once

#include <functional>
#include <string>

namespace linkgauge {

class KernelCache {
 public:
  // `folder` empty: $XDG_CACHE_HOME/linkgauge/kernels, or ~/.cache/linkgauge/kernels. A folder that cannot be made or
  // written only costs the time to compile again.
  explicit KernelCache(const std::string& folder);

  // The image made from `key` (everything that it depends on), from the folder or else from `compile`. A file that is
  // truncated or altered is compiled anew and replaced. Safe beside other processes: files appear whole, by rename.
  std::string find_or_compile(const std::string& key, const std::function<std::string()>& compile) const;

  std::string path_of(const std::string& key) const;  // empty: there is no folder
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace linkgauge
