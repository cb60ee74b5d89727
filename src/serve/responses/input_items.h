// The list of a stored response's input items, in pages.
#pragma once

#include <string>
#include <variant>

#include "base/json.h"
#include "serve/wire/api_error.h"
#include "serve/wire/exchange.h"

namespace moeflux::serve {

/// The answer to GET /responses/{id}/input_items. By OpenAI's rules the latest of `items` come
/// first, 20 in a page, unless `order`, `limit` or `after` of the query say otherwise.
std::variant<Json, ApiError> list_input_items(const Json& items, const std::string& id,
                                              const std::string& query);

}  // namespace moeflux::serve
