// Helpers that the grammars of arguments share for schemas' keywords.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "base/format.h"
#include "base/result.h"
#include "grammar/call_grammar.h"

namespace moeflux {

/// Keywords that say nothing of what is valid, or that are seen to elsewhere.
inline bool says_nothing(std::string_view key) {
  static constexpr std::array<std::string_view, 10> kKeys = {
      "type",  "title",       "description", "default",  "examples",
      "$defs", "definitions", "$schema",     "$comment", "deprecated"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

inline Error unsupported_argument(const CallableTool& tool, std::string_view pointer,
                                  std::string_view what) {
  return make_error(ErrorCode::kUnsupported,
                    "{}#{}: {} is not supported by this model's way of writing arguments",
                    tool.source, pointer, what);
}

}  // namespace moeflux
