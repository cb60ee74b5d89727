// llama.cpp's own completions, POST /completion and /infill: what a request asks for beside what
// OpenAI's completions have, and answers in its words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "serve/answer/answer_encoder.h"
#include "serve/answer/answer_json.h"
#include "serve/answer/raw_text.h"
#include "serve/openai/running_timings.h"
#include "serve/request/field_list.h"

namespace moeflux::serve {

struct NativeCompletionRequest {
  RawRequest text;
  bool is_batch = false;  // a list of prompts, which is answered by a list
  bool return_tokens = false;
  std::vector<TokenId> never_drawn = {};  // the model's tokens that end texts, where they do not
  std::vector<std::string> response_fields = {};  // of the answer, these alone: "timings/prompt_n"
};
using DecodedNativeCompletion = std::variant<NativeCompletionRequest, ApiError>;

const FieldList& native_completion_field_list();
const FieldList& infill_field_list();

DecodedNativeCompletion decode_native_completion(const Json& body, const SamplerOptions& defaults,
                                                 const Tokenizer& tokenizer);

/// Fails with 501 where the vocabulary has no tokens for it.
DecodedNativeCompletion decode_infill(const Json& body, const SamplerOptions& defaults,
                                      const Tokenizer& tokenizer);

class NativeEncoder : public AnswerEncoder {
 public:
  /// The tokenizer must outlive this.
  NativeEncoder(AnswerIdentity identity, NativeCompletionRequest request,
                const Tokenizer& tokenizer);

  std::string begin() override { return {}; }
  std::string progress(size_t choice, const PromptProgress& progress) override;
  std::string delta(const AnswerDelta& delta) override;
  std::string end(const AnswerPart& answer) override;
  std::string fail(const ApiError& error) override;
  Json whole() override;

 private:
  /// A frame of a stream before the last.
  Json piece(size_t choice, const std::string& text, const std::vector<ScoredToken>& scores) const;
  Json final_answer(size_t choice, const AnswerPart& answer) const;
  Json settings() const;
  bool streams() const { return request_.text.generation.stream; }
  const std::vector<TokenId>& prompt_of(size_t choice) const;

  const AnswerIdentity identity_;
  const NativeCompletionRequest request_;
  const Tokenizer& tokenizer_;
  const TokenSpelling spelling_;
  struct Told {
    int64_t tokens = 0;
    RunningTimings timings;
    std::string rest;  // text that came without a token, for the last frame
  };
  std::vector<Told> told_;  // of each choice
  Json ended_ = Json::array();
};

}  // namespace moeflux::serve
