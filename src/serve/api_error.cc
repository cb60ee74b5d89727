#include "serve/api_error.h"

#include <utility>

#include "serve/wire_json.h"

namespace moeflux::serve {

ApiError api_error(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
      return {.code = "invalid_value", .message = error.message()};
    case ErrorCode::kUnsupported:
      return {.code = "unsupported_parameter", .message = error.message()};
    case ErrorCode::kNotFound:
      return {.status = 404, .type = "not_found_error", .message = error.message()};
    case ErrorCode::kResourceExhausted:
      return {.status = 429, .type = "rate_limit_error", .message = error.message()};
    case ErrorCode::kCancelled:
    case ErrorCode::kFailedPrecondition:
      return {.status = 503, .type = "unavailable_error", .message = error.message()};
    case ErrorCode::kCorruption:
    case ErrorCode::kIo:
      break;
  }
  return {.status = 500, .type = "server_error", .message = error.message()};
}

ApiError bad_field(std::string param, std::string message) {
  return {.code = "invalid_value", .message = std::move(message), .param = std::move(param)};
}

ApiError unsupported_field(std::string param, std::string message) {
  return {
      .code = "unsupported_parameter", .message = std::move(message), .param = std::move(param)};
}

Json error_body(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

std::string error_text(const ApiError& error, std::string_view /*request_id*/) {
  return dump_json(error_body(error));
}

}  // namespace moeflux::serve
