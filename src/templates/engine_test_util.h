// For tests of what only a build with Rust can do.
#pragma once

#include <gtest/gtest.h>

#include "templates/template_engine.h"

namespace moeflux::testing {

/// Whether templates are left out of this build; then holds it to saying so.
inline bool without_engine() {
  if (has_template_engine()) return false;
  const auto none = compile_template("x", "a template");
  EXPECT_TRUE(!none.ok() && none.error().code() == ErrorCode::kUnsupported);
  return true;
}

}  // namespace moeflux::testing
