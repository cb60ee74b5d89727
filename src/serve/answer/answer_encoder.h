// An answer on its way into an interface's words: the events of the stream, and the same whole.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/json.h"
#include "serve/answer/answer.h"
#include "serve/wire/api_error.h"

namespace moeflux::serve {

/// The answer to one request, of one choice or several; not thread-safe. Functions return what a
/// stream says next, whole events or lines, and nothing where it says nothing. For an answer that
/// comes whole the same calls are made.
class AnswerEncoder {
 public:
  virtual ~AnswerEncoder() = default;

  /// Once, before all others.
  virtual std::string begin() = 0;
  virtual std::string progress(size_t /*choice*/, const PromptProgress& /*progress*/) { return {}; }
  virtual std::string delta(const AnswerDelta& delta) = 0;
  /// When all choices have ended: once for each, in order. The last calls, or
  virtual std::string end(const AnswerPart& answer) = 0;
  /// this one.
  virtual std::string fail(const ApiError& error) = 0;
  /// After the last end(): what the client has to hear beside the answer. It was to be kept, and is
  /// not.
  virtual std::optional<ApiError> unkept() const { return std::nullopt; }
  /// The answer as one body, after the last end().
  virtual Json whole() = 0;
};

}  // namespace moeflux::serve
