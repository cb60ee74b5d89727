// JSON as it goes out: as a text, as a server-sent event, as a line.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace moeflux::serve {

/// The text of JSON whose strings may hold what is no UTF-8.
std::string dump_json(const Json& json);
std::string data_frame(const Json& json);
/// A server-sent event of that name.
std::string event_frame(std::string_view event, const Json& json);
/// A line of a stream of lines.
std::string json_line(const Json& json);

}  // namespace moeflux::serve
