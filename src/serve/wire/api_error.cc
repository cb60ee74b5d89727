#include "serve/wire/api_error.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

/// A relative beginning with slashes is one of these.
enum class Beginning { kPath, kName };

// Paths begin a message, with spaces or not, or stand in it and are absolute.
std::string without_folders(std::string text, Beginning beginning) {
  size_t end = std::min(text.find(": "), text.size());
  if (text.starts_with('/') || (beginning == Beginning::kPath && text.find('/') < text.find(' '))) {
    while (end > 0 && text[end - 1] == '/') text.erase(--end, 1);
    const size_t slash = end == 0 ? std::string::npos : text.rfind('/', end - 1);
    if (slash != std::string::npos) text.erase(0, slash + 1);
  }
  constexpr std::string_view kBefore = " \"'(";
  constexpr std::string_view kBehind = " \"'():,;";
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] != '/' || kBefore.find(text[at - 1]) == std::string_view::npos) continue;
    const size_t stop = std::min(text.find_first_of(kBehind, at), text.size());
    const size_t last = text.rfind('/', stop - 1);
    if (last > at) text.erase(at, last + 1 - at);
  }
  return text;
}

ApiError told(const Error& error) {
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

}  // namespace

ApiError api_error(const Error& error) {
  ApiError api = told(error);
  api.message = without_folders(std::move(api.message), Beginning::kPath);
  return api;
}

ApiError model_name_error(const Error& error) {
  ApiError api = told(error);
  api.message = without_folders(std::move(api.message), Beginning::kName);
  return api;
}

ApiError bad_field(std::string param, std::string message) {
  return {.code = "invalid_value", .message = std::move(message), .param = std::move(param)};
}

ApiError unsupported_field(std::string param, std::string message) {
  return {
      .code = "unsupported_parameter", .message = std::move(message), .param = std::move(param)};
}

ApiError deleted_meanwhile() {
  return {.status = 409,
          .code = "deleted",
          .message = "the place where the answer was to be stored was deleted before it ended"};
}

Json error_body(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json body = {{"message", error.message},
               {"type", error.type},
               {"param", or_null(error.param)},
               {"code", or_null(error.code)}};
  body.update(error.details);
  return {{"error", std::move(body)}};
}

std::string error_text(const ApiError& error, std::string_view /*request_id*/) {
  return dump_json(error_body(error));
}

}  // namespace moeflux::serve
