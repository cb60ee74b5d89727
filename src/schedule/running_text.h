// One request from its submission to its last call: says what of its prompt or text the next step
// is to evaluate and draws what follows, on a state that it can lose and have made again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "chat/decoding.h"
#include "schedule/scheduler_masks.h"
#include "schedule/step_policy.h"
#include "schedule/text_request.h"
#include "schedule/text_state.h"

namespace moeflux {

/// The work for one request so far.
struct TextWork {
  TextStatistics statistics = {};
  int64_t piece_tokens = 0;      // evaluated by all pieces
  int64_t processed_tokens = 0;  // of the prompt
  int64_t decode_steps = 0;
  std::optional<double> first_token_seconds = {};  // from the submission to the first token
};

/// The calls by which others reach a text. For any thread.
class TextSignals {
 public:
  void cancel() { stop_.request_stop(); }
  std::stop_token stop_token() const { return stop_.get_token(); }
  /// Undoes a park, also one that the receiver's call at hand will ask for.
  void resume() { ++resumes_; }
  uint64_t resumes() const { return resumes_; }

 private:
  std::stop_source stop_;
  std::atomic<uint64_t> resumes_ = 0;
};

/// A text that another one has taken the place of.
struct Preemption {
  bool is_waiting = false;          // to be admitted again
  std::vector<std::byte> snapshot;  // until it begins again; or empty
};

/// A time as StepView and AdmissionView have it.
int64_t microseconds(std::chrono::steady_clock::time_point time);

class RunningText {
 public:
  using Clock = std::chrono::steady_clock;

  RunningText(TextRequestId id, TextRequest request, std::shared_ptr<TextReceiver> receiver);

  // These are for any thread.

  TextRequestId id() const { return id_; }
  const TextRequest& request() const { return request_; }
  TextSignals& signals() { return signals_; }

  // All others are for the scheduler's thread.

  TextReceiver& receiver() { return *receiver_; }
  /// The prompt, and what followed it so far.
  std::span<const TokenId> tokens() const { return tokens_; }
  std::optional<FinishReason> end() const { return end_; }
  bool is_parked() const { return parked_at_ && *parked_at_ == signals_.resumes(); }
  /// Tokens are to be evaluated whose logits are of no use.
  bool is_in_prompt() const { return !is_at_end_; }
  TextMasks& masks() { return masks_; }
  /// It takes part in no step: its next token cannot be drawn, or told, before its mask is known.
  bool waits_for_mask() const;
  /// The mask is known: draws or tells what waited for it. Fails as take() does.
  Status settle();
  /// All that it knows of itself for the next step.
  TextView view() const;
  /// Since when it has had what it has: a place in the queue, or room for its state.
  Clock::time_point since() const { return since_; }
  TextWork work() const;

  void tell_position(int64_t queue_position);
  void note_begin();
  /// Has a place among those that run.
  void admit();
  void add_experts(const ExpertStats& more) { statistics_.experts += more; }
  /// Ends it if it was cancelled, and says whether.
  bool end_if_cancelled();

  /// Null without one.
  TextState* state() { return state_ ? &*state_ : nullptr; }
  const TextState* state() const { return state_ ? &*state_ : nullptr; }
  /// Takes a state of the first of tokens(), all but one of them at most. Others share the first
  /// `branch`, which gets a checkpoint if it lies ahead.
  void begin_from(TextState state, int64_t branch);
  /// Takes the state away, if there is one; the text goes on from another one.
  std::optional<TextState> take_state();
  /// A step with others has failed. The state is lost; the text is evaluated again, by itself until
  /// it goes on.
  void go_on_alone();

  const Preemption& preemption() const { return preemption_; }
  /// Gives the state's memory back and keeps a snapshot of it, where there is a state and memory
  /// for that. For the call whose turn it is.
  void preempt();
  /// Goes on from the snapshot. False where there is none, or one that Session::load() refuses: the
  /// text can then begin from another state.
  bool restore(std::shared_ptr<OpenModel> model);

  /// Tokens that its part of a step has at least.
  int64_t rows_needed() const { return is_at_end_ ? decoding_->rows_needed() : 1; }
  /// Its decoding, which asks for drafts before part(); null inside its prompt.
  Decoding* drafting() { return is_at_end_ ? decoding_.get() : nullptr; }
  /// Its part of a step: so many of tokens() at most, or the token that was drawn with as many
  /// drafts as fit. Lives until take().
  SessionStep part(int64_t tokens);
  /// Takes the result of a step that took `seconds`: samples the next token if those were the last,
  /// and tells the receiver. For the call whose turn it is, before anything else is evaluated.
  /// Fails as the step and Sampler do.
  Status take(const SessionStep& done, double seconds);

 private:
  /// Nobody else may take part in its steps: there are logits of many rows, or a step with others
  /// has failed.
  bool is_alone() const;
  /// Tokens that is_in_prompt() means, and those of the next piece; 0 behind the prompt.
  int64_t tokens_left() const;
  int64_t piece_left() const;
  int64_t processed_tokens() const;
  Status load(std::shared_ptr<OpenModel> model, std::span<const std::byte> snapshot);
  SessionStep piece_part(int64_t tokens);
  Status take_piece(const SessionStep& done, double seconds);
  Status take_token(const SessionStep& done, double seconds);
  bool wants_all_logits() const { return request_.prompt_logprobs && !decoding_; }
  void plan_checkpoints(int64_t branch);
  Status note_logprobs(int64_t first_position, std::span<const float> rows);
  Status start_text();
  Status draw_masked();
  Status drawn(Status drawn);
  std::optional<FinishReason> tell(const DrawnToken& drawn);
  void tell_progress(int64_t queue_position);

  const TextRequestId id_;
  const TextRequest request_;
  const std::shared_ptr<TextReceiver> receiver_;
  TextSignals signals_;

  const Clock::time_point submitted_ = Clock::now();
  Clock::time_point since_ = submitted_;
  std::optional<Clock::time_point> began_;
  std::vector<TokenId> tokens_;
  std::optional<TextState> state_;
  std::vector<int64_t> checkpoints_ahead_;  // lengths, shortest first
  bool is_at_end_ = false;    // tokens_ are evaluated, but for one that was just drawn
  int64_t piece_tokens_ = 0;  // evaluated by all pieces
  std::vector<TokenLogprobs> prompt_logprobs_;
  std::unique_ptr<Decoding> decoding_;  // from the prompt's end on
  std::vector<float> rows_;             // logits of a step with drafts
  bool is_alone_ = false;               // until it goes on
  TextMasks masks_;
  bool draws_later_ = false;  // the first token, once its mask is known
  Preemption preemption_;
  std::optional<uint64_t> parked_at_;  // signals_.resumes() then
  std::optional<double> first_token_seconds_;
  std::optional<int64_t> told_position_;
  TextStatistics statistics_;
  std::optional<FinishReason> end_;
};

}  // namespace moeflux
