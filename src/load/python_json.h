// JSON as Python's writer has it, made JSON.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

/// Outside strings, bare NaN, Infinity and -Infinity become {"__float__": "NaN"} and so on, as
/// transformers has written them since its version 5. All else stays as it is, valid or not.
std::string with_named_floats(std::string_view text);

}  // namespace moeflux
