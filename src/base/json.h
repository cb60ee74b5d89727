// JSON for config files and headers: nlohmann behind one header, parsed without exceptions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"

namespace moeflux {

/// Parses untrusted text. Fails with kCorruption on syntax errors, invalid UTF-8, duplicate keys in
/// one object, or nesting deeper than 128. `what` names the source in the message ("config.json").
Result<Json> parse_json(std::string_view text, std::string_view what);
/// The same checks for objects with very many keys.
Result<SortedJson> parse_sorted_json(std::string_view text, std::string_view what);

/// A value that is an integer and fits int64, as JSON numbers may be written "4" or "4.0".
Result<int64_t> json_int(const Json& value, std::string_view what);

/// A short rendering for error messages: the dump, cut after 60 characters.
std::string json_excerpt(const Json& value);

}  // namespace moeflux
