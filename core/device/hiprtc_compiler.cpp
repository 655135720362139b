#include "device/hiprtc_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/errors.h"
#include "base/not_copied.h"
#include "base/symbols.h"
#include "base/waiting.h"
#include "device/host_cpu.h"

extern char** environ;

namespace linkgauge {
namespace {

constexpr char kCall[] = "hiprtcCompileProgram";
constexpr std::chrono::seconds kMostTime{300};

// A folder of our own that goes with the scope.
class ScratchFolder : NotCopied {
 public:
  ScratchFolder() : path_((std::filesystem::temp_directory_path() / "linkgauge_hiprtc.XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr)
      throw RuntimeCallError("mkdtemp", std::strerror(errno), errno, -1, "folder for compiling kernels: " + path_);
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Runs the program with stderr to a file; its exit status as waitpid gives it.
int run_child(const std::vector<std::string>& words, const std::string& error_file) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, error_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = posix_spawn(&child, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw RuntimeCallError("posix_spawn", std::strerror(failed), failed, -1, words[0]);
  int status = 0;
  const auto ended = [&] { return waitpid(child, &status, WNOHANG) != 0; };
  if (!look_until(ended, std::chrono::milliseconds(5), kMostTime)) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  return status;
}

}  // namespace

HiprtcCompiler::HiprtcCompiler(std::string library, std::string child)
    : library_(std::move(library)), child_(std::move(child)) {
  if (access(child_.c_str(), X_OK) != 0)
    throw Unsupported("kernels cannot be compiled: the program " + child_ + " is missing from this installation");
}

std::string HiprtcCompiler::identity() const {
  // The version would have to be asked of the library; its file changes with it, and asking means loading it here.
  struct stat facts {};
  (void)stat(library_.c_str(), &facts);
  return "hipRTC " + std::filesystem::weakly_canonical(library_).string() + " " + std::to_string(facts.st_size) + " " +
         std::to_string(facts.st_mtime);
}

std::vector<std::string> HiprtcCompiler::options(const std::string& architecture) const {
  return {"--offload-arch=" + architecture, "-std=c++17", "-O3"};
}

std::string HiprtcCompiler::compile_linked(const LinkedCode& code, const std::string& /*architecture*/) {
  throw Unsupported("hipRTC's kernels are linked with no library's: " + code.made_by + " has none for it");
}

std::string HiprtcCompiler::compile(const std::string& source, const std::string& architecture) {
  if (architecture.empty())
    throw Unsupported("kernels cannot be compiled: this device's gfx architecture is unknown (no KFD topology)");
  const ScratchFolder folder;
  const std::string source_file = folder.file("kernels.hip");
  const std::string image_file = folder.file("kernels.image");
  const std::string error_file = folder.file("errors");
  std::ofstream(source_file, std::ios::binary) << source;
  std::vector<std::string> words = {child_, library_, source_file, image_file};
  for (const std::string& option : options(architecture)) words.push_back(option);
  const int status = run_child(words, error_file);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::string image = text_of(image_file);
    if (!image.empty()) return image;
  }
  std::string said = text_of(error_file);
  while (!said.empty() && std::isspace(static_cast<unsigned char>(said.back())) != 0) said.pop_back();
  std::replace(said.begin(), said.end(), '\n', ' ');
  constexpr std::size_t kMostSaid = 2000;
  if (said.size() > kMostSaid) said = said.substr(said.size() - kMostSaid);
  const bool killed = WIFSIGNALED(status);
  const int code = killed ? WTERMSIG(status) : WEXITSTATUS(status);
  const std::string how = killed ? std::string("the compiler ended by ") + strsignal(code) : "compiler error";
  throw RuntimeCallError(kCall, how, code, -1, "for " + architecture + (said.empty() ? "" : ": " + said));
}

std::string hiprtc_child_path() {
  constexpr char kName[] = "linkgauge-hiprtc";
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&hiprtc_child_path), &info) == 0 || info.dli_fname == nullptr) return kName;
  // The main program is given as it was called; its own name is exact.
  std::error_code error;
  const std::filesystem::path named(info.dli_fname);
  const std::filesystem::path holder =
      named.is_absolute() ? named : std::filesystem::read_symlink("/proc/self/exe", error);
  return (holder.parent_path() / kName).string();
}

std::unique_ptr<KernelCompiler> open_hiprtc(const std::string& hip_library) {
  const std::filesystem::path folder = std::filesystem::path(hip_library).parent_path();
  std::string library = hip_library;
  std::error_code error;
  for (const char* version : {".7", ".6", ".5"}) {
    const std::filesystem::path own = folder / (std::string("libhiprtc.so") + version);
    if (!std::filesystem::exists(own, error)) continue;
    library = own.string();
    break;
  }
  return std::make_unique<HiprtcCompiler>(library, hiprtc_child_path());
}

}  // namespace linkgauge
