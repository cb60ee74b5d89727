// llama.cpp's own completions, POST /completion and /infill: what a request asks for beside what
// OpenAI's completions have, and answers in its words.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "serve/choices.h"
#include "serve/field_list.h"
#include "serve/openai/completions.h"

namespace moeflux::serve {

struct NativeCompletionRequest {
  CompletionRequest text;
  bool is_batch = false;  // a list of prompts, which is answered by a list
  bool return_tokens = false;
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

struct NativeChoicesOptions {
  AnswerIdentity identity;
  NativeCompletionRequest request;
};

class NativeChoices : public Choices {
 public:
  /// See Choices. The tokenizer must outlive this.
  NativeChoices(Scheduler& scheduler, AnswerTarget target, const Tokenizer& tokenizer,
                NativeChoicesOptions options);

  /// Who hears of a choice; keeps this alive.
  std::shared_ptr<CompletionListener> listener(size_t choice);

 private:
  class Listener;
  std::string last_bytes() override;
  Json whole_answer() override;
  std::string error_bytes(const ApiError& error) override;
  bool tell(size_t choice, const CompletionDelta& delta);
  Json piece(size_t choice, const CompletionDelta& delta) const;
  Json final_answer(size_t choice) const;
  Json settings() const;

  const Tokenizer& tokenizer_;
  const TokenSpelling spelling_;
  const NativeChoicesOptions options_;
  struct Told {
    CompletionPart part;
    int64_t tokens = 0;
    std::string rest;  // text that came without a token, for the last frame
  };
  std::vector<Told> told_;
};

}  // namespace moeflux::serve
