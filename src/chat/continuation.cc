#include "chat/continuation.h"

#include <algorithm>
#include <utility>

namespace moeflux {

Continuation::Continuation(const Tokenizer& tokenizer, Sampler& sampler, TextLimits limits,
                           const TextSink& sink)
    : sampler_(sampler),
      limits_(std::move(limits)),
      detokenizer_(tokenizer, {.skip_special = true, .continues_text = true}),
      stop_strings_(limits_.stop_strings),
      sink_(sink) {
  if (limits_.tokens_max == 0) end_ = FinishReason::kTokensMax;
}

Result<std::optional<TokenId>> Continuation::next(const LastLogits& logits) {
  MF_CHECK(!end_);
  MF_ASSIGN_OR_RETURN(const TokenId token, draw(logits));
  if (std::ranges::count(limits_.stop_tokens, token) > 0) {
    end_ = FinishReason::kStopToken;
    return std::optional<TokenId>();
  }
  sampler_.accept(token);
  ++generated_tokens_;
  const bool is_wanted = sink_(stop_strings_.push(detokenizer_.push(token)));
  if (!is_wanted || limits_.stop.stop_requested()) {
    end_ = FinishReason::kCancelled;
  } else if (stop_strings_.stopped()) {
    end_ = FinishReason::kStopString;
  } else if (generated_tokens_ > limits_.places) {
    end_ = FinishReason::kContextFull;
  } else if (generated_tokens_ == limits_.tokens_max) {
    end_ = FinishReason::kTokensMax;
  }
  return std::optional<TokenId>(token);
}

Result<TokenId> Continuation::draw(const LastLogits& logits) {
  return logits.best.empty() ? sampler_.sample(logits.all)
                             : sampler_.sample_best(logits.best, logits.best_of);
}

void Continuation::finish() {
  MF_CHECK(end_);
  std::string rest = stop_strings_.push(detokenizer_.finish());
  sink_(rest + stop_strings_.finish());
}

BestLogits Continuation::best_needed(int64_t vocab_size) const {
  auto count = static_cast<int32_t>(vocab_size);
  const int32_t limit = sampler_.options().vocab_limit;
  if (limit > 0) count = std::min(count, limit);
  const int32_t needed = sampler_.best_needed(count);
  return needed > 0 && needed <= kTopRowsMax ? BestLogits{.count = needed, .of = count}
                                             : BestLogits{};
}

}  // namespace moeflux
