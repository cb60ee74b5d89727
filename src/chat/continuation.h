// The text that follows a text, one token at a time: draws, detokenizes, stops. Evaluates nothing:
// whoever evaluates the tokens may have other texts to evaluate beside this one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/stop_strings.h"
#include "engine/engine.h"
#include "sampling/sampler.h"
#include "text/detokenizer.h"

namespace moeflux {

enum class FinishReason : uint8_t { kStopToken, kTokensMax, kContextFull, kCancelled, kStopString };

/// Receives complete characters. False ends the text as kCancelled.
using TextSink = std::function<bool(std::string_view text)>;

/// When a text ends.
struct TextLimits {
  int64_t tokens_max = 0;  // negative: no limit
  int64_t places = 0;      // tokens that the context still takes
  std::vector<TokenId> stop_tokens = {};
  std::vector<std::string> stop_strings = {};
  std::stop_token stop = {};  // looked at after each token; requested by any thread
};

/// The last token's logits, as far as they are needed: all of them, or the best alone.
struct LastLogits {
  std::span<const float> all = {};
  std::span<const TokenLogit> best = {};
  int32_t best_of = 0;  // how many logits these are the best of
};

/// One continuation; not thread-safe.
class Continuation {
 public:
  /// `sampler` has seen the text so far. It, the tokenizer and the sink must outlive this.
  Continuation(const Tokenizer& tokenizer, Sampler& sampler, TextLimits limits,
               const TextSink& sink);

  /// Draws the token after the last one, whose logits are given, and hands its text to the sink.
  /// The token comes next in the sequence, if there is a place for it; none after a stop token.
  /// Fails as Sampler::sample() does. Not after the end.
  Result<std::optional<TokenId>> next(const LastLogits& logits);
  /// Why the text has ended, if it has.
  std::optional<FinishReason> end() const { return end_; }
  /// Gives the sink what was held back. Once, after the end.
  void finish();

  /// How many of the best of a row of `vocab_size` logits next() needs; none: all logits.
  BestLogits best_needed(int64_t vocab_size) const;
  /// Without a stop token.
  int64_t generated_tokens() const { return generated_tokens_; }

 private:
  Result<TokenId> draw(const LastLogits& logits);

  Sampler& sampler_;
  TextLimits limits_;
  Detokenizer detokenizer_;
  StopStrings stop_strings_;
  const TextSink& sink_;
  int64_t generated_tokens_ = 0;
  std::optional<FinishReason> end_;
};

}  // namespace moeflux
