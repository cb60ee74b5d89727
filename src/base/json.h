// JSON for config files and headers: nlohmann behind one header, parsed without exceptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/ordered_map.h"
#include "base/result.h"

namespace moeflux {

/// Limits for a text from a stranger. A value takes up to some 70 bytes, however short its text.
struct JsonLimits {
  size_t values = SIZE_MAX;  // of all arrays and objects together, keys apart
  /// Asked now and then while the text is read: true ends that, with kCancelled.
  std::function<bool()> is_given_up = {};
};

/// Parses untrusted text, in time n log n of its bytes whatever it holds. Fails with kCorruption on
/// syntax errors, invalid UTF-8, duplicate keys in one object, or nesting deeper than 128, and with
/// kResourceExhausted beyond the limits. `what` names the source in the message ("config.json").
Result<Json> parse_json(std::string_view text, std::string_view what,
                        const JsonLimits& limits = {});
/// The same with sorted keys.
Result<SortedJson> parse_sorted_json(std::string_view text, std::string_view what);

/// A value that is an integer and fits int64, as JSON numbers may be written "4" or "4.0".
Result<int64_t> json_int(const Json& value, std::string_view what);

/// A short rendering for error messages: the dump, cut after 60 characters.
std::string json_excerpt(const Json& value);

}  // namespace moeflux
