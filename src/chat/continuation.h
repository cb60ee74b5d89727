// The tokens that follow a text, one at a time: draws them or takes what was forced, detokenizes,
// stops. Evaluates nothing: whoever evaluates the tokens may have other texts to evaluate beside
// this one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/token_mask.h"
#include "chat/constrained_text.h"
#include "chat/drawn_token.h"
#include "engine/engine.h"
#include "sampling/sampler.h"
#include "text/detokenizer.h"

namespace moeflux {

enum class FinishReason : uint8_t { kStopToken, kTokensMax, kContextFull, kCancelled, kStopString };

/// Is told each token, a stop token too, and may say that the text ends with it, and why.
using TokenSink = std::function<std::optional<FinishReason>(const DrawnToken& token)>;

/// When a text ends, and what is told of its tokens.
struct TextLimits {
  int64_t tokens_max = 0;  // negative: no limit
  int64_t places = 0;      // tokens that the context still takes
  std::vector<TokenId> stop_tokens = {};
  int64_t tokens_min = 0;  // as TextRequest has it, and
  std::vector<TokenId> allowed_tokens = {};
  int32_t top_logprobs = -1;      // as TextRequest has it
  bool sampled_logprobs = false;  // the same
  bool skip_special = true;       // special tokens have no text
  /// Somebody else finds out what may follow a token of a constrained text before it is told.
  bool follows_apart = false;
};

/// The last token's logits, as far as they are needed: all of them, or the best alone.
struct LastLogits {
  std::span<const float> all = {};
  std::span<const TokenLogit> best = {};
  int32_t best_of = 0;     // how many logits these are the best of
  bool is_ruled = false;   // as BestLogits has it,
  TokenMask allowed = {};  // and this
};

/// One continuation; not thread-safe.
class Continuation {
 public:
  /// `sampler` has seen the text so far. It and the tokenizer must outlive this; without a
  /// tokenizer, null, tokens have no text.
  /// `constrained`, unless it is null, is the text that follows, without a token yet or gone on
  /// with.
  Continuation(const Tokenizer* tokenizer, Sampler& sampler, TextLimits limits, TokenSink sink,
               std::shared_ptr<ConstrainedText> constrained = nullptr);

  /// Draws the token after the last one, whose logits are given, and tells the sink, to whom end()
  /// is known already unless it is the sink who ends the text. The token comes next in the
  /// sequence, if there is a place for it; none after a stop token. A constrained text that can
  /// neither go on nor be stopped by a token ends as if by one. Fails as Sampler::sample() and
  /// ConstrainedText do, and with kInvalidArgument for a forced token that has no logit. Not after
  /// the end.
  Result<std::optional<TokenId>> next(const LastLogits& logits);
  /// These come next, behind earlier ones, instead of what would be drawn.
  void force(std::span<const TokenId> tokens);
  /// With `follows_apart`: a token that was drawn and is not told, since the constrained text has
  /// not advanced by it.
  std::optional<TokenId> followed() const;
  /// It has. Tells the token; fails as next() does.
  Status tell_followed();
  /// Why the text has ended, if it has.
  std::optional<FinishReason> end() const { return end_; }
  /// The held-back bytes of a character. Once, from the end on.
  std::string rest() { return detokenizer_ ? detokenizer_->finish() : std::string(); }

  /// How many of the best of a row of `vocab_size` logits next() needs; none: all logits. Ruled
  /// ones, which know masks, penalties and bias, only where `may_rule`: they are of the next token
  /// alone, and view this until then.
  BestLogits best_needed(int64_t vocab_size, bool may_rule = false);
  /// The best logits are not enough, since the constraint forbids their tokens.
  Result<bool> needs_all(const LastLogits& logits);
  /// Without a stop token.
  int64_t generated_tokens() const { return generated_tokens_; }
  /// How many more the limits allow.
  int64_t tokens_left() const;
  /// Tokens that will follow instead of drawn ones.
  const std::deque<TokenId>& forced() const { return forced_; }

 private:
  Result<TokenId> choose(const LastLogits& logits);
  Result<TokenMask> mask(size_t vocab_size);
  BestLogits ruled_needed(int64_t vocab_size, int32_t count);
  bool has_rule() const;
  bool has_mask() const { return constrained_ != nullptr || has_rule(); }
  TokenMask ruled(size_t vocab_size, const TokenMask* allowed);
  Result<std::optional<TokenLogprobs>> logprobs(const LastLogits& logits, TokenId token) const;
  void end_at_limits();
  Status follow();
  void tell(TokenId token, const std::optional<TokenLogprobs>& logprobs);

  /// A token that was drawn, and what is told of it.
  struct Drawn {
    TokenId token = 0;
    std::optional<TokenLogprobs> logprobs = {};
  };

  Sampler& sampler_;
  TextLimits limits_;
  const std::shared_ptr<ConstrainedText> constrained_;
  std::optional<Detokenizer> detokenizer_;
  TokenSink sink_;
  std::deque<TokenId> forced_;
  std::vector<uint32_t> words_;  // of a mask
  std::vector<TokenId> apart_;   // of best_needed()
  std::optional<Drawn> followed_;
  int64_t generated_tokens_ = 0;
  std::optional<FinishReason> end_;
};

}  // namespace moeflux
