// Reads a configuration file: the part of TOML that settings need. Knows no settings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moeflux {

/// "key = value" or "key = [value, value]" below "[section]" or "[section.name]".
struct ConfigEntry {
  std::string section;  // empty above the first; "one.two" of [one.two] and [one."two"]
  std::string key;
  std::vector<std::string> values;  // without quotes
  int line = 0;
};

/// Strings in one line, numbers, booleans and arrays of them; comments; a byte order mark. A key
/// stands once in a section, as an option, where '_' is '-'. Fails with
/// kInvalidArgument, naming `source` and the line, for all else of TOML and what is not TOML.
Result<std::vector<ConfigEntry>> parse_config(std::string_view text, const std::string& source);

}  // namespace moeflux
