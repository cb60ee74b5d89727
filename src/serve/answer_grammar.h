// What a request's answers are held to.
#pragma once

#include <optional>

#include "serve/api_error.h"
#include "serve/chat_request.h"

namespace moeflux::serve {

/// Refuses a request whose answers would have to be held to something.
std::optional<ApiError> check_constraints(const ChatRequest& request);

}  // namespace moeflux::serve
