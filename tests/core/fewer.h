// Where a test takes fewer cases than elsewhere.
#pragma once

namespace linkgauge {

// What the thread sanitizer watches is how threads meet, which neither every size nor every datatype changes, and each
// case takes it many times as long.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// A sanitizer and an emulator take each case many times as long, most of it in threads that wait for each other: of the
// numbers of ranks they get one, and of sizes some, where every one is tried otherwise.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(LINKGAUGE_EMULATED)
inline constexpr bool kFewRanks = true;
#else
inline constexpr bool kFewRanks = false;
#endif

}  // namespace linkgauge
