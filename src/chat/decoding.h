// The only decode loop, in steps: evaluates the token that came last, has the next one drawn, tells
// it. Between steps other texts may be evaluated. With drafts a step evaluates tokens that may
// follow as well; each position is drawn as it would be without them, until one is another than its
// draft, and the sequence forgets the drafts from there on. So the text is the same.
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
#include "chat/drafts/draft_options.h"
#include "chat/drafts/draft_price.h"
#include "chat/drafts/text_drafts.h"
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
/// The logits of a step's rows: all of them, or the best of each alone.
struct StepLogits {
  std::span<const float> all = {};        // [rows, vocab_size]
  std::span<const TokenLogit> best = {};  // [rows, shape.count], or of a row that is ruled
  BestLogits shape = {};
};

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
  /// The tokens for somebody else to evaluate instead: the pending one behind those that the
  /// sequence has lost, and behind it drafts, as far as `tokens_max` goes. Valid until step_with()
  /// or abandon(), one of which has to follow. Only where a token is pending.
  std::span<const TokenId> begin_step(int64_t tokens_max);
  /// Before begin_step() with as many tokens, for somebody who asks the sources of several texts
  /// together: the question to this one's, if there is one, which answer() has to follow. It lives
  /// until then.
  std::optional<DraftSource::Ask> ask(int64_t tokens_max);
  /// The call took `seconds`.
  void answer(Result<Draft> draft, double seconds);
  /// Tokens of that without drafts.
  int64_t rows_needed() const { return static_cast<int64_t>(lost_.size()) + 1; }
  /// The rows whose logits the step wants.
  LogitsMode logits_needed() const {
    return drafts_.empty() ? LogitsMode::kLast : LogitsMode::kAll;
  }
  /// With a constraint that somebody else follows: what may come behind the pending token, for whom
  /// to know the constraint there as well. The next step drafts what is known.
  std::vector<TokenId> drafts_ahead();
  /// Draws what follows, given the logits. The evaluation took `seconds`, drafting left out.
  Status step_with(const StepLogits& logits, double seconds);
  /// The step has failed. True where it had drafts and memory ran out: the sequence is mended, and
  /// the next step has none.
  bool abandon(const Error& error);
  /// How many of the best of a row's logits are enough; none: all are needed. As
  /// Continuation::best_needed() has it, for a step without drafts.
  BestLogits best_needed(bool may_rule = false);
  const DraftCounts& drafts() const { return counts_; }
  /// Seconds that a source took to draft for the step at hand.
  double drafting_seconds() const { return proposed_.seconds + proposed_.draft.follow_seconds; }
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
  /// Tokens by which steps took the text further: one each, and the drafts that were accepted.
  int64_t steps() const { return steps_; }

 private:
  Decoding(Session& session, Sampler sampler, TextLimits limits, TokenSink sink,
           std::shared_ptr<ConstrainedText> constrained);
  Status eval(std::span<const TokenId> tokens, LogitsMode logits, const BestLogits& best);
  Status eval_step();
  Status eval_lost(bool with_pending);
  void plan_drafts(int64_t tokens_max);
  std::vector<TokenId> find_drafts(int64_t tokens_max);
  void index_text();
  std::vector<TokenId> find_repeats(int64_t tokens_max);
  int64_t worth_asking(int64_t tokens_max);
  std::vector<TokenId> take_answer(Result<Draft> draft, double seconds);
  void note_step(DraftPrice::Step step, int64_t accepted);
  int64_t drafts_max(int64_t tokens_max) const;
  void begin_checkpoint();
  LastLogits row(size_t i) const;
  Status draw();
  Status draw_row(size_t i, std::optional<TokenId>& token);
  Status settle(size_t accepted);

  Session* session_;
  Sampler sampler_;
  const std::shared_ptr<ConstrainedText> apart_;  // that somebody else follows, or null
  DraftOptions draft_options_;
  const bool overwrites_state_;  // a step cannot be forgotten without a checkpoint
  Continuation text_;
  std::vector<float> first_;  // logits before any step
  StepLogits rows_;       // of the engine, until something else is evaluated, of first_ or best_
  size_t first_row_ = 0;  // of rows_, that of the pending token
  size_t last_row_ = 0;   // of these, the last that was drawn from
  std::vector<TokenLogit> best_;
  std::vector<TokenId> lost_;  // told and evaluated, then lost with drafts behind them
  std::optional<TokenId> pending_;
  int64_t steps_ = 0;

  std::optional<TextDrafts> index_;  // of the sequence and what follows, from the first draft on
  std::unique_ptr<DraftSource> source_;  // or null
  DraftPrice price_;
  DraftCounts counts_;
  DraftOrigin origin_ = DraftOrigin::kText;  // of the last drafts
  // These are of the step at hand.
  std::optional<std::vector<TokenId>> found_;  // drafts, before begin_step() takes them
  std::vector<TokenId> step_tokens_;
  std::vector<TokenId> drafts_;
  /// The source's, before the price chose of it.
  struct Proposed {
    Draft draft;
    double seconds = 0.0;  // without follow_seconds
  };
  Proposed proposed_;
  std::optional<CheckpointId> checkpoint_;  // its beginning, where layers cannot forget
};

}  // namespace moeflux
