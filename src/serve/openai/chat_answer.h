// OpenAI's chat completions: an answer of one or several choices, whole or as frames. Shapes are
// those of openai-python's types/chat, with llama.cpp's additions.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "serve/answer/answer_encoder.h"
#include "serve/answer/answer_json.h"
#include "serve/openai/running_timings.h"
#include "serve/request/generation_fields.h"

namespace moeflux::serve {

/// "stop", "length" or "tool_calls".
std::string finish_reason(const AnswerPart& answer);

/// The calls of a message, as clients send them back.
Json chat_calls(const std::vector<ToolCall>& calls);

struct ChatAnswerOptions {
  AnswerIdentity identity;
  GenerationFields generation;  // how much is told beside the text
  bool with_logprobs = false;
  std::optional<std::string> prompt = {};  // told under llama.cpp's name
  /// Told of the first choice before the client hears that all have ended; what that has to hear
  /// besides.
  std::function<std::optional<ApiError>(const AnswerPart& answer)> on_end = {};
};

class ChatEncoder : public AnswerEncoder {
 public:
  ChatEncoder(ChatAnswerOptions options, TokenSpelling spelling);

  std::string begin() override;
  std::string progress(size_t choice, const PromptProgress& progress) override;
  std::string delta(const AnswerDelta& delta) override;
  std::string end(const AnswerPart& answer) override;
  std::string fail(const ApiError& error) override;
  std::optional<ApiError> unkept() const override { return unkept_; }
  Json whole() override;

 private:
  Json head(const char* object, Json choices) const;
  std::string frame(Json json) const;
  Json chunk(size_t choice, Json delta, const Json& reason = nullptr) const;
  Json logprobs(const std::vector<ScoredToken>& scores) const;
  /// Members of the last frame beside the choice, and of the whole answer.
  void add_end(Json& json) const;

  const ChatAnswerOptions options_;
  const TokenSpelling spelling_;
  const size_t choices_;
  std::vector<AnswerPart> answers_;  // that have ended
  std::optional<ApiError> unkept_;
  std::vector<RunningTimings> timings_;  // of each choice
};

}  // namespace moeflux::serve
