#include "device/rtc_api.h"

#include <algorithm>

#include "base/errors.h"
#include "base/not_copied.h"

namespace linkgauge::rtc {
namespace {

constexpr std::size_t kMostLog = 2000;  // of an error's one line

void check(const Api& api, Result result, const std::string& call, const std::string& detail = {}) {
  if (result == 0) return;
  const char* text = api.error_text(result);
  throw RuntimeCallError(call, text != nullptr ? text : "unknown error", result, -1, detail);
}

std::string log_of(const Api& api, Program program) {
  std::size_t size = 0;
  if (api.log_size(program, &size) != 0 || size <= 1) return {};
  std::string text(size, '\0');
  if (api.log(program, text.data()) != 0) return {};
  text.resize(std::min(text.find('\0'), std::min(size, kMostLog)));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Owns a program for a scope.
struct ProgramScope : NotCopied {
  explicit ProgramScope(const Api& of) : api(of) {}
  ~ProgramScope() {
    if (program != nullptr) (void)api.destroy_program(&program);
  }

  const Api& api;
  Program program = nullptr;
};

}  // namespace

std::vector<SymbolEntry> Api::nvrtc_entries() {
#define LINKGAUGE_ENTRY(member, nvrtc_name, hiprtc_name, type) {#nvrtc_name, reinterpret_cast<void**>(&member), true},
  const auto slot = [](auto& member) { return reinterpret_cast<void**>(&member); };
  return {LINKGAUGE_RTC_API(LINKGAUGE_ENTRY){"nvrtcGetPTXSize", slot(ptx_size), true},
          {"nvrtcGetPTX", slot(ptx), true},
          {"nvrtcGetNumSupportedArchs", slot(architecture_count), false},
          {"nvrtcGetSupportedArchs", slot(architectures), false}};
#undef LINKGAUGE_ENTRY
}

std::vector<SymbolEntry> Api::hiprtc_entries() {
#define LINKGAUGE_ENTRY(member, nvrtc_name, hiprtc_name, type) {#hiprtc_name, reinterpret_cast<void**>(&member), true},
  return {LINKGAUGE_RTC_API(LINKGAUGE_ENTRY)};
#undef LINKGAUGE_ENTRY
}

std::string compile(const Api& api, const char* call, const std::string& source,
                    const std::vector<std::string>& options, Kind kind, std::span<const Header> headers) {
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const Header& header : headers) {
    texts.push_back(header.text);
    names.push_back(header.name);
  }
  ProgramScope scope(api);
  check(api,
        api.create_program(&scope.program, source.c_str(), "linkgauge_kernels.cu", static_cast<int>(headers.size()),
                           texts.data(), names.data()),
        call);
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const Result result = api.compile_program(scope.program, static_cast<int>(arguments.size()), arguments.data());
  check(api, result, call, log_of(api, scope.program));
  std::size_t size = 0;
  check(api, (kind == Kind::kPtx ? api.ptx_size : api.code_size)(scope.program, &size), call, "code size");
  std::string image(size, '\0');
  check(api, (kind == Kind::kPtx ? api.ptx : api.code)(scope.program, image.data()), call, "code");
  if (image.empty()) throw RuntimeCallError(call, "no code", 0, -1, "the compiler gave an empty image");
  return image;
}

}  // namespace linkgauge::rtc
