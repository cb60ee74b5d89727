// The description of the HTTP interface, OpenAPI 3.1.
#pragma once

#include <string_view>

namespace moeflux::serve {

/// The text of openapi.json.
std::string_view openapi_text();

}  // namespace moeflux::serve
