// One answer on its way into a protocol's words: the events of the stream, and the same whole.
#pragma once

#include <string>

#include "base/json.h"
#include "serve/answer.h"
#include "serve/api_error.h"

namespace moeflux::serve {

/// One answer; not thread-safe. Functions return what a stream says next, whole events or lines,
/// and nothing where it says nothing. For an answer that comes whole the same calls are made.
class AnswerEncoder {
 public:
  virtual ~AnswerEncoder() = default;

  /// Once, before all others.
  virtual std::string begin() = 0;
  virtual std::string progress(const PromptProgress& /*progress*/) { return {}; }
  virtual std::string delta(const AnswerDelta& delta) = 0;
  /// The last call, or
  virtual std::string end(const AnswerPart& answer) = 0;
  /// this one.
  virtual std::string fail(const ApiError& error) = 0;
  /// The answer as one body, after end().
  virtual Json whole() = 0;
};

}  // namespace moeflux::serve
