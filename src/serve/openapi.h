// The description of the HTTP interface, OpenAPI 3.1.
#pragma once

#include <string_view>

namespace moeflux::serve {

std::string_view openapi_text();

}  // namespace moeflux::serve
