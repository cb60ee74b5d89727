#include "chat/text_generator.h"

#include <algorithm>
#include <chrono>

#include "text/detokenizer.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Result<GenerateResult> generate(Engine& engine, const Tokenizer& tokenizer, Sequence& sequence,
                                std::span<const TokenId> prompt, const GenerateOptions& options,
                                const TextSink& sink) {
  GenerateResult result;
  MF_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(options.sampler));
  for (const TokenId token : prompt) sampler.accept(token);
  Detokenizer detokenizer(tokenizer, {.skip_special = true});

  ExpertStats before = engine.expert_stats();
  Clock::time_point begin = Clock::now();
  Result<std::span<const float>> logits = engine.eval_last(sequence, prompt, options.stop);
  result.prefill_seconds = seconds_since(begin);
  result.prefill_experts = engine.expert_stats() - before;
  before = engine.expert_stats();
  begin = Clock::now();
  if (!logits.ok() && logits.error().code() == ErrorCode::kCancelled) {
    result.reason = FinishReason::kCancelled;
    return result;
  }
  if (!logits.ok()) return logits.error();
  result.prompt_tokens = static_cast<int64_t>(prompt.size());

  while (true) {
    if (options.tokens_max >= 0 && result.generated_tokens >= options.tokens_max) {
      result.reason = FinishReason::kTokensMax;
      break;
    }
    MF_ASSIGN_OR_RETURN(const TokenId token, sampler.sample(*logits));
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) !=
        options.stop_tokens.end()) {
      result.reason = FinishReason::kStopToken;
      break;
    }
    sampler.accept(token);
    ++result.generated_tokens;
    const bool wanted = sink(detokenizer.push(token));
    if (!wanted || options.stop.stop_requested()) {
      result.reason = FinishReason::kCancelled;
      break;
    }
    if (sequence.length() >= engine.context_length()) {
      result.reason = FinishReason::kContextFull;
      break;
    }
    // The last token's logits would not be used.
    if (result.generated_tokens == options.tokens_max) continue;
    logits = engine.eval_last(sequence, std::span(&token, 1));
    if (!logits.ok()) return logits.error();
    ++result.decode_steps;
  }
  sink(detokenizer.finish());
  result.decode_seconds = seconds_since(begin);
  result.decode_experts = engine.expert_stats() - before;
  return result;
}

}  // namespace moeflux
