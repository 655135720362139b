// What calls throw, and cases that a session refuses: the reason that is given.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "run/session.h"

namespace linkgauge {

// The words of what the call throws.
template <typename Exception, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing of that kind was thrown";
  return {};
}

inline void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
}

// Collective over the case's ranks.
inline void expect_refused(Session& session, const CaseSpec& spec, const std::string& reason) {
  expect_contains(message_of<Unsupported>([&] { session.measure(spec); }), {reason});
}

}  // namespace linkgauge
