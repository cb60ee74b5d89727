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
    if (!constrained_->follow_ahead(token)) {
      followed_ = {.token = token, .logprobs = known};
      return std::optional<TokenId>(token);
    }
    MF_RETURN_IF_ERROR(follow());
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

int64_t Continuation::tokens_left() const {
  const int64_t places = limits_.places + 1 - generated_tokens_;
  return limits_.tokens_max < 0 ? places : std::min(places, limits_.tokens_max - generated_tokens_);
}

Result<TokenId> Continuation::choose(const LastLogits& logits) {
  if (!forced_.empty()) {
    const TokenId token = forced_.front();
    forced_.pop_front();
    return token;
  }
  if (logits.is_ruled) {
    return sampler_.sample_some(logits.best, logits.best_of,
                                logits.allowed.words.empty() ? nullptr : &logits.allowed);
  }
  if (!logits.best.empty()) return sampler_.sample_best(logits.best, logits.best_of);
  if (!has_mask()) return sampler_.sample(logits.all);
  MF_ASSIGN_OR_RETURN(const TokenMask allowed, mask(logits.all.size()));
  return sampler_.sample(logits.all, &allowed);
}

// Only where there is one.
Result<TokenMask> Continuation::mask(size_t vocab_size) {
  TokenMask mask;
  if (constrained_ != nullptr) {
    MF_ASSIGN_OR_RETURN(const auto allowed, constrained_->allowed(limits_.stop_tokens));
    mask = allowed.mask;
  }
  if (has_rule()) mask = ruled(vocab_size, constrained_ == nullptr ? nullptr : &mask);
  return mask;
}

bool Continuation::has_rule() const {
  return !limits_.allowed_tokens.empty() || generated_tokens_ < limits_.tokens_min;
}

// A token of `allowed`, or any without, that the limits allow too. A rule that would leave no token
// is dropped: the constraint, or the list, which says what may be sampled and not when.
TokenMask Continuation::ruled(size_t vocab_size, const TokenMask* allowed) {
  const size_t count = (vocab_size + 31) / 32;
  const bool is_listed = !limits_.allowed_tokens.empty();
  words_.assign(count, is_listed ? 0 : ~uint32_t{0});
  const auto set = [&](TokenId token, bool on) {
    const auto word = static_cast<size_t>(token) / 32;
    if (token < 0 || word >= count) return;
    const uint32_t bit = uint32_t{1} << (static_cast<uint32_t>(token) % 32);
    words_[word] = on ? words_[word] | bit : words_[word] & ~bit;
  };
  for (const TokenId token : limits_.allowed_tokens) set(token, true);
  const bool may_end = generated_tokens_ >= limits_.tokens_min;
  const auto is_stop = [&](TokenId token) {
    return std::ranges::count(limits_.stop_tokens, token) > 0;
  };
  const bool is_list_of_ends = is_listed && std::ranges::all_of(limits_.allowed_tokens, is_stop);
  for (const TokenId token : limits_.stop_tokens) {
    if (!may_end && !is_list_of_ends) set(token, false);
  }
  if (allowed == nullptr) return {words_};
  uint32_t any = 0;
  for (size_t i = 0; i < count; ++i) {
    words_[i] &= i < allowed->words.size() ? allowed->words[i] : 0;
    any |= words_[i];
  }
  return any == 0 ? *allowed : TokenMask{words_};
}

Result<bool> Continuation::needs_all(const LastLogits& logits) {
  const bool is_known = logits.best.empty() || logits.is_ruled || !forced_.empty();
  if (constrained_ == nullptr || is_known) return false;
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
  if (!limits_.sampled_logprobs) {
    return std::optional(token_logprobs(logits.all, token, limits_.top_logprobs));
  }
  // A greedy pick was the only one that could be drawn.
  Candidates drawn_from = sampler_.candidates();
  if (sampler_.options().temperature <= 0) drawn_from.list = {{0.0f, token}};
  return std::optional(
      sampled_logprobs(std::move(drawn_from), token, static_cast<size_t>(limits_.top_logprobs)));
}

BestLogits Continuation::best_needed(int64_t vocab_size, bool may_rule) {
  if (limits_.top_logprobs >= 0) return {};
  auto count = static_cast<int32_t>(vocab_size);
  const int32_t limit = sampler_.options().vocab_limit;
  if (limit > 0) count = std::min(count, limit);
  const int32_t needed = sampler_.best_needed(count);
  if (may_rule && forced_.empty() && (has_mask() || needed == 0)) {
    return ruled_needed(vocab_size, count);
  }
  if (has_rule()) return {};
  // The constraint may forbid some of several, and others stand in for them.
  if (constrained_ != nullptr && needed > 1) return {};
  return needed > 0 && needed <= kTopRowsMax ? BestLogits{.count = needed, .of = count}
                                             : BestLogits{};
}

// Where the constraint fails, next() says so.
BestLogits Continuation::ruled_needed(int64_t vocab_size, int32_t count) {
  Sampler::SomeNeeded needed = sampler_.some_needed(count);
  if (needed.best == 0 || needed.best > kTopRowsMax || needed.apart.size() > kApartMax) return {};
  BestLogits best{.count = needed.best, .of = count, .is_ruled = true};
  if (has_mask()) {
    const Result<TokenMask> allowed = mask(static_cast<size_t>(vocab_size));
    if (!allowed.ok() || allowed->words.empty()) return {};
    best.allowed = *allowed;
  }
  apart_ = std::move(needed.apart);
  best.apart = apart_;
  return best;
}

}  // namespace moeflux
