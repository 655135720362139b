// linkgauge-hiprtc: compiles one source file with hipRTC, so that an abort in it ends this process and no other.
//
// linkgauge-hiprtc LIBRARY SOURCE IMAGE OPTION...   exit status 0, or 1 with the reason on stderr
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/symbols.h"
#include "device/rtc_api.h"

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: linkgauge-hiprtc LIBRARY SOURCE IMAGE OPTION...\n");
    return 2;
  }
  const linkgauge::SharedLibrary library({words[1]});
  linkgauge::rtc::Api api;
  if (!library) {
    std::fprintf(stderr, "%s\n", library.why().c_str());
    return 1;
  }
  const std::string missing = linkgauge::bind_symbols(library, api.hiprtc_entries());
  if (!missing.empty()) {
    std::fprintf(stderr, "%s lacks %s\n", words[1], missing.c_str());
    return 1;
  }
  std::ifstream file(words[2], std::ios::binary);
  std::ostringstream source;
  source << file.rdbuf();
  try {
    const std::string image = linkgauge::rtc::compile(api, "hiprtcCompileProgram", source.str(),
                                                      std::vector<std::string>(words + 4, words + count));
    std::ofstream out(words[3], std::ios::binary);
    out.write(image.data(), static_cast<std::streamsize>(image.size()));
    return out.flush() ? 0 : 1;
  } catch (const linkgauge::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
