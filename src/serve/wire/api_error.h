// The error that a client gets when a request fails, in the words of OpenAI's interface.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moeflux::serve {

struct ApiError {
  int status = 400;  // of HTTP
  std::string type = "invalid_request_error";
  std::string code = {};  // empty: null
  std::string message = {};
  std::string param = {};  // the field of the request; empty: null
  /// Further members of OpenAI's error object.
  Json details = Json::object();
};

/// The type of errors that say that a prompt is longer than the context, as llama.cpp calls it;
/// OpenAI's clients look at the code, "context_length_exceeded".
inline constexpr std::string_view kTooLong = "exceed_context_size_error";

/// A failure of the engine. Ours are 5xx, the client's 4xx. Files are called by their last names:
/// where they lie is no client's business.
ApiError api_error(const Error& error);
/// The same of a failure that begins with a model's name or an address of the hub, which stay
/// whole: "org/model: no such model".
ApiError model_name_error(const Error& error);
/// A field of a request that cannot be right.
ApiError bad_field(std::string param, std::string message);
/// A field that is known and cannot be served.
ApiError unsupported_field(std::string param, std::string message);

/// An answer whose name was deleted before it ended.
ApiError deleted_meanwhile();

/// {"error": {"message", "type", "param", "code"}}
Json error_body(const ApiError& error);
/// The same as a body. OpenAI's interface has no request's id in it.
std::string error_text(const ApiError& error, std::string_view request_id = {});

}  // namespace moeflux::serve
