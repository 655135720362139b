#include "base/case_spec.h"

#include <sstream>

#include "base/errors.h"

namespace linkgauge {

std::vector<std::pair<std::string, std::string>> settings_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> found;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t mark = word.find('=');
    if (mark == 0 || mark == std::string::npos)
      throw CallerError("settings: '" + word + "' is none, expected NAME=VALUE");
    found.emplace_back(word.substr(0, mark), word.substr(mark + 1));
  }
  return found;
}

}  // namespace linkgauge
