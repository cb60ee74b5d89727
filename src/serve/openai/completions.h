// OpenAI's completions of plain text: no template, no parsing.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "chat/scheduler.h"
#include "chat/stop_strings.h"
#include "constraint/output_constraint.h"
#include "serve/api_error.h"
#include "serve/generation_fields.h"
#include "serve/openai/common.h"
#include "text/tokenizer.h"

namespace moeflux::serve {

struct CompletionRequest {
  GenerationFields generation;
  std::vector<std::vector<TokenId>> prompts;
  bool echo = false;            // the answer begins with the prompt
  bool skip_special = false;    // special tokens have no text
  bool tells_tokens = false;    // its tokens, with or without scores
  bool sampled_scores = false;  // of what was drawn from, not the model's own
  int32_t logprobs = -1;        // of each token, beside so many of the best; negative: none
  OutputConstraint constraint;
};

/// prompt: a string, ids, a list of both, or a list of these, in which case it is true. Problems
/// are left in `fields`.
bool read_prompts(Fields& fields, const Tokenizer& tokenizer, CompletionRequest& request);

std::variant<CompletionRequest, ApiError> decode_completion_request(const Json& body,
                                                                    const SamplerOptions& defaults,
                                                                    const Tokenizer& tokenizer);

/// One token of a completion as lists of scores show it.
struct CompletionToken {
  TokenId token = 0;
  std::string text;        // of lists: may be a part of a character
  int64_t offset = 0;      // where it begins, in characters of the answer
  bool has_score = false;  // a prompt's first token has none
  TokenLogprobs logprobs;
};

struct CompletionDelta {
  std::string text;
  std::vector<CompletionToken> tokens;  // if they are wanted
};

/// All that was said so far.
struct CompletionPart {
  std::string text;
  std::vector<CompletionToken> tokens;
  bool stopped = false;         // by a stop string,
  std::string stopped_by = {};  // this one
  TextStatistics statistics;
};

class CompletionListener {
 public:
  virtual ~CompletionListener() = default;
  /// True to compute nothing more until Scheduler::resume().
  virtual bool on_delta(const CompletionDelta& delta) = 0;
  virtual void on_done(const CompletionPart& part) = 0;
  virtual void on_failed(const Error& error) = 0;
};

/// One choice while it is generated.
class Completion : public TextReceiver {
 public:
  /// `prompt` is echoed, if that is wanted. The tokenizer must outlive this.
  Completion(const Tokenizer& tokenizer, const CompletionRequest& request,
             std::vector<TokenId> prompt, std::shared_ptr<CompletionListener> listener);

  void on_prompt_logprobs(std::span<const TokenLogprobs> scores) override;
  Verdict on_token(const DrawnToken& token) override;
  void on_done(const TextStatistics& statistics) override;
  void on_failed(const Error& error) override { listener_->on_failed(error); }

 private:
  void add_token(TokenId token, const TokenLogprobs* score, CompletionDelta& delta);
  bool echo(CompletionDelta& delta, std::span<const TokenLogprobs> scores);
  bool tell(CompletionDelta delta);

  const Tokenizer& tokenizer_;
  const bool wants_scores_;
  const bool wants_tokens_;
  bool echoes_;  // still to come
  const bool skips_special_;
  const std::vector<TokenId> prompt_;
  const std::shared_ptr<CompletionListener> listener_;
  StopStrings stop_;
  CompletionPart part_;
  std::vector<TokenLogprobs> prompt_scores_;
  int64_t offset_ = 0;  // characters of tokens so far
};

Json text_completion(const AnswerIdentity& identity, const std::vector<CompletionPart>& parts,
                     const TokenSpelling& spelling, bool with_logprobs, size_t prompts);
Json text_delta_chunk(const AnswerIdentity& identity, int64_t choice, const CompletionDelta& delta,
                      const TokenSpelling& spelling, bool with_logprobs);
/// The last choice's tells of all.
Json text_last_chunk(const AnswerIdentity& identity, int64_t choice,
                     const std::vector<CompletionPart>& parts);
Json text_usage_chunk(const AnswerIdentity& identity, const std::vector<CompletionPart>& parts,
                      size_t prompts);

}  // namespace moeflux::serve
