#include "mpi/control_variables.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/case_spec.h"

namespace linkgauge {
namespace {

constexpr std::string_view kMca = "OMPI_MCA_";
constexpr std::size_t kNumberBytes = 8;                     // of the widest type of a variable that is one number
constexpr std::size_t kLongest = 1 << 16;                   // of a text
static_assert(std::endian::native == std::endian::little);  // a narrow number is the front of a wide one

}  // namespace

std::string ControlVariables::begin() {
  if (begun_) return "";
  if (!bind_symbols(library_, calls_.entries()).empty()) {
    return "the MPI library has no MPI_T, by which its settings could be changed in a launch";
  }
  int level = 0;
  if (calls_.MPI_T_init_thread(0, &level) != 0) return "MPI_T cannot be begun";
  begun_ = true;
  return "";
}

std::string ControlVariables::open(const std::string& name, Variable& found) {
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const auto& one) { return one.first == name; });
  if (known != known_.end()) {
    found = known->second;
    return "";
  }
  const std::string own = name.starts_with(kMca) ? name.substr(kMca.size()) : name;
  int index = 0;
  if (calls_.MPI_T_cvar_get_index(own.c_str(), &index) != 0) return "the MPI library has no control variable " + own;
  if (calls_.MPI_T_cvar_handle_alloc(index, nullptr, &found.handle, &found.count) != 0 || found.count < 1 ||
      static_cast<std::size_t>(found.count) > kLongest) {
    return "the MPI library's control variable " + own + " cannot be opened";
  }
  known_.emplace_back(name, found);
  return "";
}

// As many bytes as the library may write: its type is not asked for.
int ControlVariables::read(const Variable& variable, Content& content) const {
  content.assign(kNumberBytes * static_cast<std::size_t>(variable.count), std::byte{0});
  return calls_.MPI_T_cvar_read(variable.handle, content.data());
}

std::string ControlVariables::write(const std::string& name, const std::string& value) {
  Variable variable;
  if (std::string reason = open(name, variable); !reason.empty()) return reason;
  Content before;
  if (read(variable, before) != 0) return "the MPI library's control variable " + name + " cannot be read";
  Content wanted(before.size(), std::byte{0});
  if (variable.count > 1) {
    if (value.size() >= static_cast<std::size_t>(variable.count)) return name + "=" + value + " is too long";
    std::memcpy(wanted.data(), value.data(), value.size());
  } else {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size()) {
      return name + "=" + value + ": expected a whole number, as MPI_T gives it";
    }
    std::memcpy(wanted.data(), &number, sizeof number);
  }
  if (const int code = calls_.MPI_T_cvar_write(variable.handle, wanted.data()); code != 0) {
    return "the MPI library lets no one change " + name + " while it runs (MPI_T says " + std::to_string(code) + ")";
  }
  changed_.emplace_back(variable, std::move(before));
  Content after;
  (void)read(variable, after);
  // A number narrower than eight bytes leaves those behind it as they were, zero.
  const std::size_t told = variable.count > 1 ? value.size() + 1 : std::min(sizeof(std::int32_t), after.size());
  if (std::memcmp(after.data(), wanted.data(), told) != 0) return "the MPI library does not take " + name + "=" + value;
  return "";
}

std::string ControlVariables::settle(const std::string& settings) {
  for (; !changed_.empty(); changed_.pop_back()) {
    (void)calls_.MPI_T_cvar_write(changed_.back().first.handle, changed_.back().second.data());
  }
  if (settings.empty()) return "";
  std::string reason = begin();
  for (const auto& [name, value] : settings_of(settings)) {
    if (reason.empty()) reason = write(name, value);
  }
  if (!reason.empty()) settle("");
  return reason;
}

}  // namespace linkgauge
