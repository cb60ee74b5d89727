// The only decode loop, in steps: evaluates the token that came last, has the next one drawn, tells
// it. Between steps other texts may be evaluated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/continuation.h"
#include "sampling/sampler.h"

namespace moeflux {

class Session;

struct DecodingOptions {
  int64_t tokens_max = 0;                 // negative: until the text or the context ends
  std::vector<TokenId> stop_tokens = {};  // beside the model's
  bool ignore_model_stop_tokens = false;
  int64_t tokens_min = 0;  // as TextRequest has it, and
  std::vector<TokenId> allowed_tokens = {};
  int32_t top_logprobs = -1;
  bool sampled_logprobs = false;  // as TextRequest has it
  bool skip_special = true;
  std::shared_ptr<ConstrainedText> constrained = {};  // the text that follows, or null
  bool follows_apart = false;                         // as TextLimits has it
};

/// Tokens that follow a session's. Where step() fails, the last token's logits are not known. Every
/// function is for the call whose turn it is.
class Decoding {
 public:
  /// With the session's sampler. The sessions must outlive this. Fails as Session::sample() does.
  static Result<std::unique_ptr<Decoding>> start(Session& session, DecodingOptions options,
                                                 TokenSink sink);
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

  /// Evaluates the last token told, but for the first, which follows the session's own; then tells
  /// the next. Not after the end.
  Status step();
  /// The same for a pending token that somebody else has evaluated, with its logits.
  Status step_with(const LastLogits& logits);
  /// How many of the best of that token's logits are enough; none: all are needed.
  BestLogits best_needed() const;
  /// As Continuation's.
  void force(std::span<const TokenId> tokens) { text_.force(tokens); }
  std::optional<TokenId> followed() const { return text_.followed(); }
  Status tell_followed() { return text_.tell_followed(); }
  std::optional<FinishReason> end() const { return text_.end(); }
  std::string rest() { return text_.rest(); }
  int64_t generated_tokens() const { return text_.generated_tokens(); }

  /// The last token told, if it has not been evaluated and is to be.
  std::optional<TokenId> pending() const { return pending_; }
  /// Goes on with another session, which holds the text so far, with the pending token, and its
  /// logits.
  void move_to(Session& session);
  /// Ends the steps: the session gets the sampler's progress and the last token's logits. That
  /// token is evaluated first if it is kept and has a place.
  Status finish(bool keep_last_token);
  /// Evaluations of a token.
  int64_t steps() const { return steps_; }

 private:
  Decoding(Session& session, Sampler sampler, TextLimits limits, TokenSink sink,
           std::shared_ptr<ConstrainedText> constrained);
  Status eval_pending();
  Status draw();

  Session* session_;
  Sampler sampler_;
  Continuation text_;
  std::vector<float> first_;  // logits before any step
  LastLogits last_;  // of the engine, until something else is evaluated, of first_ or of best_
  std::vector<TokenLogit> best_;
  std::optional<TokenId> pending_;
  int64_t steps_ = 0;
};

}  // namespace moeflux
