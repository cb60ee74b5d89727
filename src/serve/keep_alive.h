// How long an idle model stays loaded, as Ollama writes it.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/json.h"

namespace moeflux::serve {

/// Below zero: for ever.
using KeepAlive = std::chrono::nanoseconds;

/// As Go reads a time: "1h30m", "-1.5s", "0"; nothing where it is not one. A number without a unit
/// is not one.
std::optional<KeepAlive> parse_go_time(std::string_view text);

/// A time as above, or a number of seconds.
std::optional<KeepAlive> parse_keep_alive(std::string_view text);

/// The field of a request: a number of seconds, or a time as above.
std::optional<KeepAlive> read_keep_alive(const Json& value);

}  // namespace moeflux::serve
