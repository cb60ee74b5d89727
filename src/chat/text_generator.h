// Tokens in, text out, as it is generated: prefill, sample, detokenize, stop.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "sampling/sampler.h"
#include "text/tokenizer.h"

namespace moeflux {

struct GenerateOptions {
  int64_t tokens_max = 128;  // negative: until a stop token or the end of the context
  SamplerOptions sampler = {};
  std::vector<TokenId> stop_tokens = {};       // end the text; not part of it
  std::vector<std::string> stop_strings = {};  // the same
  std::stop_token stop = {};
  /// generate() only. Told after each chunk of the prompt how many of its tokens are evaluated.
  std::function<void(int64_t tokens)> prefill_progress = {};
};

enum class FinishReason : uint8_t { kStopToken, kTokensMax, kContextFull, kCancelled, kStopString };

struct GenerateResult {
  FinishReason reason = FinishReason::kTokensMax;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;  // without a stop token
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
  int64_t decode_steps = 0;  // evaluations of a single token
  ExpertStats prefill_experts;
  ExpertStats decode_experts;
};

/// Receives complete characters. False ends the generation as kCancelled.
using TextSink = std::function<bool(std::string_view text)>;

/// Evaluates the prompt in `sequence` and continues it. Fails as Engine::eval does; text already
/// delivered stays, and `result` holds what was done until then, with a reason that means nothing.
Status generate(Engine& engine, const Tokenizer& tokenizer, Sequence& sequence,
                std::span<const TokenId> prompt, const GenerateOptions& options,
                const TextSink& sink, GenerateResult& result);

/// The text after what `sequence` holds. `sampler` has seen its tokens, and `logits` are its last
/// token's; afterwards those of the last token delivered, which is then part of the sequence, or
/// none when the context was full or evaluation failed. options.sampler means nothing here.
Result<GenerateResult> continue_text(Engine& engine, const Tokenizer& tokenizer, Sequence& sequence,
                                     Sampler& sampler, std::vector<float>& logits,
                                     const GenerateOptions& options, const TextSink& sink);

}  // namespace moeflux
