// An answer in a conversation, in OpenAI's words.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "serve/choices.h"
#include "serve/openai/chat.h"

namespace moeflux::serve {

struct ChatChoicesOptions {
  AnswerIdentity identity;
  bool stream = false;
  bool include_usage = false;
  bool return_progress = false;
  bool timings_per_token = false;
  bool with_logprobs = false;
  /// Told of the first choice before the client hears that all have ended; what that has to hear
  /// besides.
  std::function<std::optional<ApiError>(const AnswerPart& answer)> on_end = {};
};

class ChatChoices : public Choices {
 public:
  /// See Choices.
  ChatChoices(Scheduler& scheduler, AnswerTarget target, TokenSpelling spelling,
              ChatChoicesOptions options, size_t choices, JobThread* ends_on);

  /// Who hears of a choice; keeps this alive.
  std::shared_ptr<AnswerListener> listener(size_t choice);

 private:
  class Listener;
  std::string first_bytes() override;
  std::optional<ApiError> before_end() override;
  std::string last_bytes() override;
  Json whole_answer() override;
  std::string error_bytes(const ApiError& error) override;
  bool tell(size_t choice, const AnswerDelta& delta);
  Json with_usage_null(Json frame) const;

  const TokenSpelling spelling_;
  const ChatChoicesOptions options_;
  std::vector<AnswerPart> answers_;
  struct Pace {
    std::chrono::steady_clock::time_point first;
    int64_t tokens = 0;
  };
  std::vector<Pace> paces_;
};

}  // namespace moeflux::serve
