// One request from its submission to its last call: evaluates its prompt and draws its text in
// steps, on a state that it can lose and have made again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "chat/decoding.h"
#include "chat/eval_timer.h"
#include "chat/text_request.h"
#include "chat/text_state.h"

namespace moeflux {

/// What a text has cost so far.
struct TextWork {
  int64_t prompt_tokens = 0;  // evaluated in pieces
  int64_t generated_tokens = 0;
  int64_t decode_steps = 0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
  std::optional<double> first_token_seconds = {};  // from the submission to the first token
};

class RunningText {
 public:
  using Clock = std::chrono::steady_clock;

  RunningText(TextRequestId id, TextRequest request, std::shared_ptr<TextReceiver> receiver);

  // These are for any thread.

  TextRequestId id() const { return id_; }
  const TextRequest& request() const { return request_; }
  void cancel() { stop_.request_stop(); }
  bool is_cancelled() const { return stop_.stop_requested(); }
  /// Undoes a park, also one that the receiver's call at hand will ask for.
  void resume() { ++resumes_; }

  // All others are for the scheduler's thread.

  TextReceiver& receiver() { return *receiver_; }
  /// The prompt, and what followed it so far.
  std::span<const TokenId> tokens() const { return tokens_; }
  /// How many of them are the prompt's.
  int64_t prompt_length() const { return static_cast<int64_t>(request_.prompt.size()); }
  const TextStatistics& statistics() const { return statistics_; }
  std::optional<FinishReason> end() const { return end_; }
  bool is_parked() const { return parked_at_ && *parked_at_ == resumes_; }
  /// Tokens are to be evaluated whose logits are of no use.
  bool is_in_prompt() const { return !is_at_end_; }
  int64_t processed_tokens() const;
  TextWork work() const;

  void tell_position(int64_t queue_position);
  void note_begin();
  void add_experts(const ExpertStats& more) { statistics_.experts += more; }
  void end_as(FinishReason reason) { end_ = reason; }

  bool has_state() const { return state_.has_value(); }
  TextState& state() { return *state_; }
  /// Takes a state of the first of tokens(), all but one of them at most. Others share the first
  /// `branch`, which gets a checkpoint if it lies ahead.
  void begin_from(TextState state, int64_t branch);
  /// Forgets the state; the text goes on from another one.
  void drop_state();
  /// None after a failure.
  std::optional<TextState> take_state() { return std::exchange(state_, std::nullopt); }

  /// Evaluates a piece of tokens(), or a token that was drawn, and draws the next if that was the
  /// last, all told to the receiver. For the call whose turn it is. Looks first whether it was
  /// cancelled. Fails as Session::eval() and Sampler do.
  Status step();

 private:
  Status eval_piece();
  int64_t piece_end(int64_t begin) const;
  Status note_logprobs(int64_t first_position, std::span<const float> rows);
  Status start_text();
  Status decode();
  std::optional<FinishReason> tell(const DrawnToken& drawn);
  void tell_progress(int64_t queue_position);

  const TextRequestId id_;
  const TextRequest request_;
  const std::shared_ptr<TextReceiver> receiver_;
  std::stop_source stop_;
  std::atomic<uint64_t> resumes_ = 0;

  const Clock::time_point submitted_ = Clock::now();
  std::optional<Clock::time_point> began_;
  std::vector<TokenId> tokens_;
  std::optional<TextState> state_;
  std::vector<int64_t> checkpoints_ahead_;  // lengths, shortest first
  bool is_at_end_ = false;    // tokens_ are evaluated, but for one that was just drawn
  int64_t piece_tokens_ = 0;  // evaluated by all pieces
  std::vector<TokenLogprobs> prompt_logprobs_;
  std::unique_ptr<Decoding> decoding_;  // from the prompt's end on
  EvalTimer* timer_ = nullptr;          // of a step of decode, while it runs
  std::optional<uint64_t> parked_at_;   // resumes_ then
  std::optional<double> first_token_seconds_;
  std::optional<int64_t> told_position_;
  TextStatistics statistics_;
  std::optional<FinishReason> end_;
};

}  // namespace moeflux
