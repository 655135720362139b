#include "device/kernel_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "device/host_cpu.h"

namespace linkgauge {
namespace {

constexpr char kMagic[8] = {'L', 'G', 'K', 'E', 'R', 'N', '0', '1'};
constexpr std::size_t kHeaderBytes = sizeof(kMagic) + 2 * sizeof(std::uint64_t);

// FNV-1a with a chosen start; two of them make the 128 bits of a file name, since a wrong hit would run wrong code.
std::uint64_t hash(const std::string& text, std::uint64_t start) {
  std::uint64_t value = start;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return value;
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string default_folder() {
  const char* base = std::getenv("XDG_CACHE_HOME");
  if (base != nullptr && base[0] == '/') return std::string(base) + "/linkgauge/kernels";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/linkgauge/kernels";
  return {};
}

std::string read_image(const std::string& path) {
  const std::string bytes = text_of(path);
  if (bytes.size() <= kHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) return {};
  std::uint64_t size = 0;
  std::uint64_t sum = 0;
  std::memcpy(&size, bytes.data() + sizeof(kMagic), sizeof(size));
  std::memcpy(&sum, bytes.data() + sizeof(kMagic) + sizeof(size), sizeof(sum));
  std::string image = bytes.substr(kHeaderBytes);
  return image.size() == size && hash(image, size) == sum ? image : std::string();
}

void write_image(const std::string& path, const std::string& image) {
  std::string temporary = path + ".XXXXXX";
  const int file = mkstemp(temporary.data());
  if (file < 0) return;
  const std::uint64_t size = image.size();
  const std::uint64_t sum = hash(image, size);
  std::string bytes(kMagic, sizeof(kMagic));
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  bytes += image;
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t step = write(file, bytes.data() + written, bytes.size() - written);
    if (step <= 0) break;
    written += static_cast<std::size_t>(step);
  }
  const bool whole = close(file) == 0 && written == bytes.size();
  if (!whole || std::rename(temporary.c_str(), path.c_str()) != 0) (void)unlink(temporary.c_str());
}

}  // namespace

KernelCache::KernelCache(const std::string& folder) : folder_(folder.empty() ? default_folder() : folder) {}

std::string KernelCache::path_of(const std::string& key) const {
  if (folder_.empty()) return {};
  return folder_ + "/" + hex(hash(key, 0xcbf29ce484222325ULL)) + hex(hash(key, 0x9ae16a3b2f90404fULL)) + ".kernels";
}

std::string KernelCache::find_or_compile(const std::string& key, const std::function<std::string()>& compile) const {
  const std::string path = path_of(key);
  if (path.empty()) return compile();
  if (std::string image = read_image(path); !image.empty()) return image;
  std::string image = compile();
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (!error) write_image(path, image);
  return image;
}

}  // namespace linkgauge
