// Completions of plain texts, in OpenAI's words.
#pragma once

#include <memory>
#include <vector>

#include "serve/choices.h"
#include "serve/openai/completions.h"

namespace moeflux::serve {

struct TextChoicesOptions {
  AnswerIdentity identity;
  bool stream = false;
  bool include_usage = false;
  bool with_logprobs = false;
  size_t prompts = 1;
};

class TextChoices : public Choices {
 public:
  TextChoices(Scheduler& scheduler, AnswerTarget target, TokenSpelling spelling,
              TextChoicesOptions options, size_t choices);

  /// Who hears of a choice; keeps this alive.
  std::shared_ptr<CompletionListener> listener(size_t choice);

 private:
  class Listener;
  std::string last_bytes() override;
  Json whole_answer() override;
  std::string error_bytes(const ApiError& error) override;

  const TokenSpelling spelling_;
  const TextChoicesOptions options_;
  std::vector<CompletionPart> parts_;
};

}  // namespace moeflux::serve
