// Expectations about an error: its code, and the pieces of text that a reader needs.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>

#include "base/result.h"

namespace moeflux::testing {

/// `outcome` is a Status or a Result.
template <typename Outcome>
void expect_error(const Outcome& outcome, ErrorCode code,
                  std::initializer_list<std::string_view> pieces) {
  ASSERT_FALSE(outcome.ok()) << "no error, expected " << error_code_name(code);
  const Error& error = outcome.error();
  EXPECT_EQ(error.code(), code) << error.to_string();
  for (const std::string_view piece : pieces) {
    EXPECT_NE(error.message().find(piece), std::string::npos)
        << "'" << piece << "' is not in: " << error.to_string();
  }
  EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
}

}  // namespace moeflux::testing
