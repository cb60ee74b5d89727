#include "serve/dialect.h"

#include <chrono>
#include <utility>

#include "serve/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr std::chrono::milliseconds kKeepAliveInterval{5000};

// Anthropic's SDKs choose a class by the status; people read the type.
std::string_view anthropic_type(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return error.status >= 500 ? "api_error" : "invalid_request_error";
  }
}

Json anthropic_body(const ApiError& error, std::string_view request_id) {
  return {{"type", "error"},
          {"error", {{"type", anthropic_type(error)}, {"message", error.message}}},
          {"request_id", request_id.empty() ? Json() : Json(request_id)}};
}

}  // namespace

Dialect dialect_of(std::string_view path) {
  if (path == "/api" || path.starts_with("/api/")) return Dialect::kOllama;
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  const bool is_messages = path == "/messages" || path.starts_with("/messages/");
  return is_messages ? Dialect::kAnthropic : Dialect::kOpenAi;
}

std::string error_text(Dialect dialect, const ApiError& error, std::string_view request_id) {
  switch (dialect) {
    case Dialect::kOpenAi:
      return dump_json(error_body(error));
    case Dialect::kAnthropic:
      return dump_json(anthropic_body(error, request_id));
    case Dialect::kOllama:
      return dump_json({{"error", error.message}});
  }
  __builtin_unreachable();
}

StreamForm stream_form(Dialect dialect) {
  switch (dialect) {
    case Dialect::kOpenAi:
      return {"text/event-stream; charset=utf-8", ": keep-alive\n\n"};
    case Dialect::kAnthropic:
      return {"text/event-stream; charset=utf-8", "event: ping\ndata: {\"type\":\"ping\"}\n\n"};
    case Dialect::kOllama:
      return {"application/x-ndjson", ""};  // there are no comments between lines of JSON
  }
  __builtin_unreachable();
}

void AnswerTarget::fail(const ApiError& error) const {
  Headers headers = {{"Content-Type", "application/json"}};
  if (error.status == 429 || error.status == 503) headers.emplace_back("Retry-After", "1");
  response->send(error.status, std::move(headers), error_text(dialect, error, request_id));
}

void AnswerTarget::begin_stream() const {
  const StreamForm form = stream_form(dialect);
  response->begin(200, {{"Content-Type", form.content_type},
                        {"Cache-Control", "no-store"},
                        {"X-Accel-Buffering", "no"}});
  if (!form.keep_alive.empty()) response->keep_alive(form.keep_alive, kKeepAliveInterval);
}

}  // namespace moeflux::serve
