// The program under test.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/run_program.h"

namespace moeflux::testing {

inline ProgramOutput moeflux(const std::vector<std::string>& arguments,
                             const ProgramInput& input = {}) {
  return run_program(MOEFLUX_PROGRAM, arguments, input);
}

inline std::string fable() { return std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m"; }

inline bool contains(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

/// Exit status 0 and nothing on standard error.
inline void expect_success(const ProgramOutput& output) {
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_EQ(output.err, "");
}

}  // namespace moeflux::testing
