// Events of a streamed chat completion, as a service writes them, as text, calls and an end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"

namespace moeflux {

class ChatReader {
 public:
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;  // JSON
  };

  /// Reads more bytes of an answer with this status of HTTP; `ended`: its last ones. text() and
  /// reasoning() are then those of these bytes. Fails as the service refused or broke off.
  Status read(int status, std::string_view bytes, bool ended);

  const std::string& text() const { return text_; }
  const std::string& reasoning() const { return reasoning_; }
  const std::vector<Call>& calls() const { return calls_; }
  /// "stop", "length" or "tool_calls"; empty before the end.
  const std::string& finish_reason() const { return finish_reason_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t generated_tokens() const { return generated_tokens_; }

 private:
  Status read_event(std::string_view event);
  void read_choice(const Json& choice);
  void add_call(const Json& part);

  std::string pending_;  // the begin of an event, or of the body of an error
  std::string text_;
  std::string reasoning_;
  std::vector<Call> calls_;
  std::string finish_reason_;
  int64_t prompt_tokens_ = 0;
  int64_t generated_tokens_ = 0;
};

}  // namespace moeflux
