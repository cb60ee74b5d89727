// Texts that go on without a conversation: no template, no parsing, any number of prompts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "chat/stop_strings.h"
#include "constraint/output_constraint.h"
#include "serve/answer/choices.h"
#include "serve/answer/least_indent.h"
#include "serve/request/generation_fields.h"
#include "text/tokenizer.h"

namespace moeflux::serve {

struct RawRequest {
  GenerationFields generation;
  std::vector<std::vector<TokenId>> prompts;
  bool echo = false;            // the answer begins with the prompt
  bool skip_special = false;    // special tokens have no text
  bool tells_tokens = false;    // its tokens, with or without scores
  bool sampled_scores = false;  // of what was drawn from, not the model's own
  int64_t indent_min = 0;       // of every line but the first, else the text ends before it
  int32_t logprobs = -1;        // of each token, beside so many of the best; negative: none
  OutputConstraint constraint;
};

/// One choice while it is generated: all of it is content.
class RawText : public ChoiceReceiver {
 public:
  /// `prompt` is echoed, if that is wanted. The tokenizer must outlive this.
  RawText(const Tokenizer& tokenizer, const RawRequest& request, std::vector<TokenId> prompt,
          std::shared_ptr<Choices> choices, size_t choice);

  void on_prompt_logprobs(std::span<const TokenLogprobs> scores) override;
  Verdict on_token(const DrawnToken& token) override;
  void on_done(const TextStatistics& statistics) override;

 private:
  void echo(AnswerDelta& delta);
  bool tell_and_keep(AnswerDelta delta);

  const Tokenizer& tokenizer_;
  const bool wants_scores_;
  const bool wants_tokens_;
  bool echoes_;  // still to come
  const bool skips_special_;
  const std::vector<TokenId> prompt_;
  const int64_t tokens_min_;  // stop strings that these complete do not count
  int64_t tokens_ = 0;
  StopStrings stop_;
  LeastIndent indent_;
  AnswerPart answer_;
  std::vector<TokenLogprobs> prompt_scores_;
};

}  // namespace moeflux::serve
