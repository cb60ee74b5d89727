// Schemas with less in them than their writers asked for, where nothing has to be held to all.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"

namespace moeflux::serve {

/// The schema without the keyword or the part that a refusal names by a JSON pointer, as in
/// "tools#/properties/n/format: ...". Nothing where it names no place in this schema. A property
/// keeps its name and type.
std::optional<Json> without_refused(const Json& schema, std::string_view refusal);

/// The types of the parameters alone, and which are required.
Json types_alone(const Json& parameters);

}  // namespace moeflux::serve
