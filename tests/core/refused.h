// Cases that a session refuses, and the reason that it gives.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/errors.h"
#include "run/session.h"

namespace linkgauge {

// Collective over the case's ranks.
inline void expect_refused(Session& session, const CaseSpec& spec, const std::string& reason) {
  try {
    session.measure(spec);
    ADD_FAILURE() << "not refused: " << reason;
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

}  // namespace linkgauge
