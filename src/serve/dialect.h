// Whose words an answer is in, which the path of its request decides: how errors and streams look.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "serve/api_error.h"
#include "serve/exchange.h"

namespace moeflux::serve {

enum class Dialect : uint8_t { kOpenAi, kAnthropic, kOllama };

Dialect dialect_of(std::string_view path);

/// The body of an answer that says what is wrong. `request_id` is Anthropic's to repeat.
std::string error_text(Dialect dialect, const ApiError& error, std::string_view request_id = {});

/// How a stream of answers looks from outside.
struct StreamForm {
  std::string content_type;
  std::string keep_alive;  // what to send in silence; empty: nothing
};
StreamForm stream_form(Dialect dialect);

/// Where the answer to a request goes, and in whose words.
struct AnswerTarget {
  std::shared_ptr<Response> response;
  Dialect dialect = Dialect::kOpenAi;
  std::string request_id = {};

  /// Answers what is wrong, in place of an answer.
  void fail(const ApiError& error) const;
  /// Begins a stream.
  void begin_stream() const;
};

}  // namespace moeflux::serve
