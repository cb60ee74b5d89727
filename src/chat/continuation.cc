#include "chat/continuation.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

namespace moeflux {

Continuation::Continuation(const Tokenizer* tokenizer, Sampler& sampler, TextLimits limits,
                           TokenSink sink, std::shared_ptr<ConstrainedText> constrained)
    : sampler_(sampler),
      limits_(std::move(limits)),
      constrained_(std::move(constrained)),
      sink_(std::move(sink)) {
  if (tokenizer != nullptr) {
    detokenizer_.emplace(
        *tokenizer, DecodeOptions{.skip_special = limits_.skip_special, .continues_text = true});
  }
  if (limits_.tokens_max == 0) end_ = FinishReason::kTokensMax;
}

Result<std::optional<TokenId>> Continuation::next(const LastLogits& logits) {
  MF_CHECK(!end_);
  MF_ASSIGN_OR_RETURN(const TokenId token, choose(logits));
  MF_ASSIGN_OR_RETURN(const std::optional<TokenLogprobs> known, logprobs(logits, token));
  if (std::ranges::count(limits_.stop_tokens, token) > 0) {
    end_ = FinishReason::kStopToken;
    (void)sink_({.token = token, .is_stop = true, .logprobs = known ? &*known : nullptr});
    return std::optional<TokenId>();
  }
  sampler_.accept(token);
  ++generated_tokens_;
  end_at_limits();
  if (constrained_ != nullptr && limits_.follows_apart && !end_) {
    followed_ = {.token = token, .logprobs = known};
    return std::optional<TokenId>(token);
  }
  if (constrained_ != nullptr && !limits_.follows_apart) {
    MF_RETURN_IF_ERROR(constrained_->push(token));
    MF_RETURN_IF_ERROR(follow());
  }
  tell(token, known);
  return std::optional<TokenId>(token);
}

std::optional<TokenId> Continuation::followed() const {
  return followed_ ? std::optional(followed_->token) : std::nullopt;
}

Status Continuation::tell_followed() {
  MF_CHECK(followed_);
  const Drawn drawn = *std::exchange(followed_, std::nullopt);
  MF_RETURN_IF_ERROR(follow());
  tell(drawn.token, drawn.logprobs);
  return {};
}

void Continuation::tell(TokenId token, const std::optional<TokenLogprobs>& logprobs) {
  const std::string text = detokenizer_ ? detokenizer_->push(token) : std::string();
  const auto ended =
      sink_({.token = token, .text = text, .logprobs = logprobs ? &*logprobs : nullptr});
  if (ended) end_ = ended;
}

void Continuation::force(std::span<const TokenId> tokens) {
  forced_.insert(forced_.end(), tokens.begin(), tokens.end());
}

Status Continuation::follow() {
  if (end_) return {};
  MF_ASSIGN_OR_RETURN(const auto allowed, constrained_->allowed(limits_.stop_tokens));
  if (allowed.is_over) end_ = FinishReason::kStopToken;
  return {};
}

void Continuation::end_at_limits() {
  if (generated_tokens_ > limits_.places) {
    end_ = FinishReason::kContextFull;
  } else if (generated_tokens_ == limits_.tokens_max) {
    end_ = FinishReason::kTokensMax;
  }
}

Result<TokenId> Continuation::choose(const LastLogits& logits) {
  if (!forced_.empty()) {
    const TokenId token = forced_.front();
    forced_.pop_front();
    return token;
  }
  if (!logits.best.empty()) return sampler_.sample_best(logits.best, logits.best_of);
  if (constrained_ == nullptr) return sampler_.sample(logits.all);
  MF_ASSIGN_OR_RETURN(const auto allowed, constrained_->allowed(limits_.stop_tokens));
  return sampler_.sample(logits.all, &allowed.mask);
}

Result<bool> Continuation::needs_all(const LastLogits& logits) {
  if (constrained_ == nullptr || logits.best.empty() || !forced_.empty()) return false;
  MF_ASSIGN_OR_RETURN(const auto allowed, constrained_->allowed(limits_.stop_tokens));
  return !allowed.mask.allows(logits.best.front().id);
}

Result<std::optional<TokenLogprobs>> Continuation::logprobs(const LastLogits& logits,
                                                            TokenId token) const {
  if (limits_.top_logprobs < 0) return std::optional<TokenLogprobs>();
  if (token < 0 || static_cast<size_t>(token) >= logits.all.size()) {
    return make_error(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}",
                      token, logits.all.size());
  }
  return std::optional(token_logprobs(logits.all, token, limits_.top_logprobs));
}

BestLogits Continuation::best_needed(int64_t vocab_size) const {
  if (limits_.top_logprobs >= 0) return {};
  auto count = static_cast<int32_t>(vocab_size);
  const int32_t limit = sampler_.options().vocab_limit;
  if (limit > 0) count = std::min(count, limit);
  const int32_t needed = sampler_.best_needed(count);
  // The constraint may forbid some of several, and others stand in for them.
  if (constrained_ != nullptr && needed > 1) return {};
  return needed > 0 && needed <= kTopRowsMax ? BestLogits{.count = needed, .of = count}
                                             : BestLogits{};
}

}  // namespace moeflux
