// Session: one text on an open model. Owns the engine's sequence and, in step with it, the sampler
// and the last token's logits: evaluates, draws, continues, goes back. Every client that has a text
// has one: the program, the library, a server.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/decoding.h"
#include "chat/dry_breakers.h"
#include "chat/open_model.h"
#include "chat/session_snapshot.h"
#include "engine/engine.h"
#include "sampling/sampler.h"

namespace moeflux {

class EvalTimer;

/// Receives complete characters. False ends the text as kCancelled.
using TextSink = std::function<bool(std::string_view text)>;

struct GenerateOptions {
  int64_t tokens_max = 128;               // negative: until a stop token or the end of the context
  std::vector<TokenId> stop_tokens = {};  // beside the model's: end the text, are not part of it
  bool ignore_model_stop_tokens = false;  // they are then never drawn
  std::vector<std::string> stop_strings = {};  // end the text before them
  std::stop_token stop = {};                   // ends it after the chunk or token at hand
  /// Told each token but a stop token; gives those that have to follow it.
  std::function<std::vector<TokenId>(const DrawnToken& token)> force = {};
  /// Told after each chunk of the prompt how many of its tokens are evaluated; false stops.
  std::function<bool(int64_t tokens)> prefill_progress = {};
  /// Whether the last token is evaluated as well, so that the text can go on after it.
  bool keep_last_token = true;
};

struct GenerateResult {
  FinishReason reason = FinishReason::kTokensMax;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;  // without a stop token
  double prefill_seconds = 0.0;  // callbacks left out, as in decode_seconds
  double decode_seconds = 0.0;
  int64_t decode_steps = 0;  // tokens that evaluations took the text further by
  DraftCounts drafts;
  ExpertStats prefill_experts;
  ExpertStats decode_experts;
};

/// A session's part of Session::eval_batch(), and how that ended.
struct SessionStep {
  std::shared_ptr<Session> session;
  std::span<const TokenId> tokens = {};
  StepPhase phase = StepPhase::kPrompt;
  std::stop_token stop = {};
  LogitsMode logits = LogitsMode::kLast;
  BestLogits best = {};      // as EvalOptions has it
  LogitsSink sink = {};      // told all rows, or null
  bool keeps_logits = true;  // the session then has the last token's
  bool may_abort = false;    // asks OpenModel::is_aborted()
  Status outcome = {};
  /// The last token's logits, or the best of them: views that live until the next evaluation, for
  /// steps that fit into one of the engine.
  std::span<const float> last = {};
  std::vector<TokenLogit> best_found = {};
};

/// Names what of a sampler cannot be right, with kInvalidArgument: as validate() does, and the bias
/// of a token outside the vocabulary.
Status check_sampler(const SamplerOptions& options, int64_t vocab_size);

class Session {
 public:
  /// An empty text with the model's default sampler.
  static Result<std::shared_ptr<Session>> create(std::shared_ptr<OpenModel> model);
  /// Gives its memory back at once or, while a call of the model computes, at the end of that.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // These are for any thread, at any time.

  const std::shared_ptr<OpenModel>& model() const { return model_; }
  /// How many tokens have been evaluated. While a call runs: at its last whole chunk or token.
  int64_t position() const { return position_; }
  /// Stops the calls of this session that have a Turn or wait for one; does not wait for them.
  void cancel() { model_->turns.cancel(*this); }
  int64_t turn_timeout_ms() const { return turn_timeout_ms_; }
  void set_turn_timeout_ms(int64_t timeout_ms) { turn_timeout_ms_ = timeout_ms; }

  // All others run while no other call of the model does, which a Turn sees to.

  std::span<const TokenId> tokens() const { return sequence_->tokens(); }
  /// For evaluations that OpenModel::should_stop ends.
  std::function<bool(int64_t)> goes_on() const {
    return [this](int64_t) { return !model_->is_aborted(); };
  }
  /// Counts what a Decoding evaluates; eval() has one of its own.
  EvalTimer timer();

  /// As Engine::eval(), with logits; the last token's are kept.
  Status eval(std::span<const TokenId> tokens, const EvalOptions& options = {},
              const LogitsSink& sink = {});
  /// The same for several sessions of one model in common steps, with the last tokens' logits, as
  /// Engine::eval_step() does: who cannot be evaluated fails alone.
  static void eval_batch(std::span<SessionStep> steps);
  /// The last token's, [vocab_size], until the session changes. Where they are not known, as after
  /// truncate(), the token is evaluated again. Fails with kFailedPrecondition on an empty session,
  /// and with kCancelled when stopped, which leaves the session as it was.
  Result<std::span<const float>> logits(const std::stop_token& stop = {});

  /// Replaces the sampler and starts its generator anew. Fails as check_sampler() does.
  Status set_sampler(SamplerOptions options);
  /// Holds what is drawn to a constraint, or with kNone to nothing: from the sequence's end on, or
  /// from behind the prompt that generate() is given. Fails as OpenModel::compile() does.
  Status set_constraint(OutputConstraint constraint);
  /// Draws the token after the last; does not append it. Fails as logits() and Sampler do.
  Result<TokenId> sample(const std::stop_token& stop = {});
  /// Evaluates the prompt and continues it; without one, goes on after the last token, so that two
  /// calls of n tokens give the text of one of 2n. A stopped call is no failure. Fails as eval()
  /// does, and without a tokenizer; text already delivered stays, and `result` holds what was done
  /// until then.
  Status generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                  const TextSink& sink, GenerateResult& result);

  // As the engine's functions of these names, with sampler and logits. A call that fails leaves the
  // session as it was.

  Result<CheckpointId> checkpoint();
  Status restore(CheckpointId id);
  Status drop(CheckpointId id);
  bool can_truncate(int64_t position) const { return sequence_->can_truncate(position); }
  /// The sampler's generator and mirostat go on where they were.
  Status truncate(int64_t position, std::stop_token stop = {});
  /// Without checkpoints.
  Result<std::shared_ptr<Session>> fork() const;
  Result<std::vector<std::byte>> save() const;
  Status load(std::span<const std::byte> snapshot);
  Status save_file(const std::string& path) const;
  Status load_file(const std::string& path);
  /// A client shares its cached states with no other.
  Result<int64_t> reuse_prefix(std::span<const TokenId> tokens, std::string_view client = {});
  Status keep_prefix(std::string_view client = {}) const;

 private:
  friend class Decoding;
  friend class MtpDrafts;
  Session(std::shared_ptr<OpenModel> model, std::unique_ptr<Sequence> sequence, SessionExtra extra,
          int64_t turn_timeout_ms);
  Engine& engine() const { return *model_->engine; }
  Status eval_timed(std::span<const TokenId> tokens, const EvalOptions& options,
                    const LogitsSink& sink, EvalTimer& timer);
  Result<Sampler> make_sampler(bool ignores_model_stop_tokens);
  /// Null where there is no constraint.
  Result<std::shared_ptr<ConstrainedText>> constrained_text();
  Status prefill(std::span<const TokenId> prompt, const GenerateOptions& options,
                 GenerateResult& result);
  Status decode(const GenerateOptions& options, const TextSink& sink, GenerateResult& result);
  static Status run_steps(Decoding& decoding, bool keep_last_token);
  Status replace_both(const std::function<Result<std::vector<std::byte>>()>& load);
  /// The contents of a snapshot, with its constraint compiled.
  Result<SessionExtra> compiled(SessionExtra extra) const;
  void publish_position() { position_ = sequence_->length(); }

  const std::shared_ptr<OpenModel> model_;
  std::unique_ptr<Sequence> sequence_;
  /// A Sampler is made anew for each call: options and progress are all it has beside the tokens.
  SessionExtra extra_;
  DryBreakerCache dry_breakers_;
  std::shared_ptr<ConstrainedText> constrained_;      // as it was when last used, or null
  std::map<CheckpointId, SessionExtra> checkpoints_;  // of each, what the engine does not keep
  std::atomic<int64_t> position_ = 0;
  std::atomic<int64_t> turn_timeout_ms_;
};

}  // namespace moeflux
