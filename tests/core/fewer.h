// Where a test takes fewer cases than elsewhere.
#pragma once

#include <cstdlib>
#include <string_view>

namespace linkgauge {

// What the thread sanitizer watches is how threads meet, which neither every size nor every datatype changes, and each
// case takes it many times as long.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// './lg test --all' runs everything, and of CI's shares the first (tests/thorough.py has the rule for Python's tests).
inline bool runs_everything() {
  const char* asked = std::getenv("LINKGAUGE_TESTS");
  return asked != nullptr && (std::string_view(asked) == "all" || std::string_view(asked).substr(0, 2) == "0/");
}
inline const bool kThorough = runs_everything();

// A sanitizer and an emulator take each case many times as long, most of it in threads that wait for each other: of the
// numbers of ranks they get one, and of sizes some, where every one is tried otherwise. So does './lg test'.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(LINKGAUGE_EMULATED)
inline const bool kFewRanks = true;
#else
inline const bool kFewRanks = !kThorough;
#endif

}  // namespace linkgauge
