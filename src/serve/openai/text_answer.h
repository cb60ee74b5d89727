// OpenAI's completions of plain texts: an answer of one or several choices, whole or as frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "serve/answer/answer_encoder.h"
#include "serve/answer/answer_json.h"
#include "serve/openai/running_timings.h"
#include "serve/request/generation_fields.h"

namespace moeflux::serve {

struct TextAnswerOptions {
  AnswerIdentity identity;
  GenerationFields generation;  // how much is told beside the text
  bool with_logprobs = false;
  size_t prompts = 1;  // choices of one prompt follow each other
  size_t choices = 1;  // of all prompts
};

class TextEncoder : public AnswerEncoder {
 public:
  TextEncoder(TextAnswerOptions options, TokenSpelling spelling)
      : options_(std::move(options)),
        spelling_(spelling),
        offsets_(options_.choices),
        timings_(options_.choices) {}

  std::string begin() override { return {}; }
  std::string progress(size_t choice, const PromptProgress& progress) override;
  std::string delta(const AnswerDelta& delta) override;
  std::string end(const AnswerPart& answer) override;
  std::string fail(const ApiError& error) override;
  Json whole() override;

 private:
  Json head(Json choices) const;
  Json choice(size_t index, const std::string& text, Json logprobs, Json reason) const;
  /// The scores of tokens that begin at `offset`, in characters of the answer, which moves to their
  /// end. Null where nobody wants them.
  Json logprobs(const std::vector<ScoredToken>& scores, int64_t& offset) const;

  const TextAnswerOptions options_;
  const TokenSpelling spelling_;
  std::vector<int64_t> offsets_;         // of each choice
  std::vector<RunningTimings> timings_;  // the same
  std::vector<AnswerPart> answers_;      // that have ended
};

}  // namespace moeflux::serve
