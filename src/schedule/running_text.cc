#include "schedule/running_text.h"

#include <algorithm>
#include <string>
#include <utility>

namespace moeflux {
namespace {

double seconds_since(RunningText::Clock::time_point begin) {
  return std::chrono::duration<double>(RunningText::Clock::now() - begin).count();
}

}  // namespace

int64_t microseconds(RunningText::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

RunningText::RunningText(TextRequestId id, TextRequest request,
                         std::shared_ptr<TextReceiver> receiver)
    : id_(id),
      request_(std::move(request)),
      receiver_(std::move(receiver)),
      tokens_(request_.prompt) {
  statistics_.prompt_tokens = request_.prompt_length();
}

int64_t RunningText::processed_tokens() const {
  if (is_at_end_) return request_.prompt_length();
  return state_ ? std::min(state_->length(), request_.prompt_length()) : 0;
}

TextWork RunningText::work() const {
  TextStatistics statistics = statistics_;
  if (decoding_) statistics.drafts = decoding_->drafts();
  return {.statistics = statistics,
          .piece_tokens = piece_tokens_,
          .processed_tokens = processed_tokens(),
          .decode_steps = decoding_ ? decoding_->steps() : 0,
          .first_token_seconds = first_token_seconds_};
}

void RunningText::tell_position(int64_t queue_position) {
  if (told_position_ == queue_position) return;
  told_position_ = queue_position;
  tell_progress(queue_position);
}

void RunningText::tell_progress(int64_t queue_position) {
  receiver_->on_progress({.queue_position = queue_position,
                          .total = request_.prompt_length(),
                          .cached = statistics_.cached_tokens,
                          .processed = processed_tokens(),
                          .seconds = statistics_.prefill_seconds});
}

void RunningText::note_begin() {
  if (began_) return;
  began_ = Clock::now();
  statistics_.queued_seconds = seconds_since(submitted_);
}

void RunningText::admit() {
  since_ = Clock::now();
  preemption_.is_waiting = false;
}

bool RunningText::end_if_cancelled() {
  if (!signals_.stop_token().stop_requested()) return false;
  end_ = FinishReason::kCancelled;
  return true;
}

void RunningText::begin_from(TextState state, int64_t branch) {
  const int64_t length = state.length();
  state_.emplace(std::move(state));
  is_at_end_ = false;
  plan_checkpoints(branch);
  if (decoding_) return;
  statistics_.cached_tokens = length;
  tell_position(0);
}

// Where layers forget, any length will do.
void RunningText::plan_checkpoints(int64_t branch) {
  const auto end = static_cast<int64_t>(tokens_.size());
  if (state_->session().model()->engine->loaded().shortest_truncation(end) == 0) return;
  for (const int64_t point : {branch, request_.prompt_length() - 1}) {
    if (point > state_->length() && point < end) checkpoints_ahead_.push_back(point);
  }
  std::ranges::sort(checkpoints_ahead_);
}

std::optional<TextState> RunningText::take_state() {
  checkpoints_ahead_.clear();
  is_at_end_ = false;
  draws_later_ = false;
  // All of the prompt is evaluated again.
  prompt_logprobs_.clear();
  return std::exchange(state_, std::nullopt);
}

void RunningText::go_on_alone() {
  take_state();
  is_alone_ = true;
}

// A prompt whose logits are told would lack those of tokens that its snapshot has, and one whose
// first token is still to be drawn those of its last.
void RunningText::preempt() {
  preemption_.is_waiting = true;
  since_ = Clock::now();
  if (!state_) return;
  if (!draws_later_ && (is_at_end_ || !wants_all_logits())) {
    Result<std::vector<std::byte>> saved = state_->session().save();
    if (saved.ok()) preemption_.snapshot = std::move(*saved);
  }
  take_state();
}

bool RunningText::restore(std::shared_ptr<OpenModel> model) {
  const std::vector<std::byte> snapshot = std::exchange(preemption_.snapshot, {});
  return !snapshot.empty() && load(std::move(model), snapshot).ok();
}

Status RunningText::load(std::shared_ptr<OpenModel> model, std::span<const std::byte> snapshot) {
  MF_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, Session::create(std::move(model)));
  MF_RETURN_IF_ERROR(session->load(snapshot));
  state_.emplace(std::move(session));
  plan_checkpoints(0);
  return {};
}

TextView RunningText::view() const {
  return {.id = id_,
          .alone = is_alone(),
          .prompt_tokens = tokens_left(),
          .piece_tokens = piece_left(),
          .waits_since_us = microseconds(submitted_)};
}

int64_t RunningText::tokens_left() const {
  if (is_at_end_) return 0;
  return static_cast<int64_t>(tokens_.size()) - (state_ ? state_->length() : 0);
}

int64_t RunningText::piece_left() const {
  const int64_t begin = state_ ? state_->length() : 0;
  int64_t end = begin + tokens_left();
  for (const int64_t point : checkpoints_ahead_) {
    if (point > begin) end = std::min(end, point);
  }
  return end - begin;
}

bool RunningText::is_alone() const { return is_alone_ || (!is_at_end_ && wants_all_logits()); }

SessionStep RunningText::part(int64_t tokens) {
  if (!is_at_end_) return piece_part(std::min(tokens, piece_left()));
  SessionStep part{.session = state_->shared_session(),
                   .tokens = decoding_->begin_step(tokens),
                   .phase = StepPhase::kDecode,
                   .stop = signals_.stop_token(),
                   .logits = decoding_->logits_needed()};
  part.best = decoding_->best_needed(/*may_rule=*/true);
  // A constraint may forbid the best, and the step's rows are not there any more when it is drawn.
  if (request_.constraint != nullptr && !part.best.is_ruled) part.best = {};
  part.keeps_logits = false;
  rows_.clear();
  if (part.logits == LogitsMode::kAll && part.best.count == 0) {
    // Beside others, rows may come in several steps.
    part.sink = [this](int64_t, std::span<const float> rows) {
      rows_.insert(rows_.end(), rows.begin(), rows.end());
      return Status();
    };
  }
  return part;
}

SessionStep RunningText::piece_part(int64_t tokens) {
  const auto begin = static_cast<size_t>(state_->length());
  const bool is_last = begin + static_cast<size_t>(tokens) == tokens_.size();
  SessionStep part{.session = state_->shared_session(),
                   .tokens = std::span(tokens_).subspan(begin, static_cast<size_t>(tokens)),
                   .stop = signals_.stop_token(),
                   .logits = is_last ? LogitsMode::kLast : LogitsMode::kNone};
  if (!wants_all_logits()) return part;
  part.logits = LogitsMode::kAll;
  part.sink = [this](int64_t first, std::span<const float> rows) {
    return note_logprobs(first, rows);
  };
  return part;
}

Status RunningText::take(const SessionStep& done, double seconds) {
  const Status taken = is_at_end_ ? take_token(done, seconds) : take_piece(done, seconds);
  if (taken.ok() || taken.error().code() != ErrorCode::kCancelled) return taken;
  end_ = FinishReason::kCancelled;
  return {};
}

Status RunningText::take_token(const SessionStep& done, double seconds) {
  statistics_.decode_seconds += seconds + decoding_->drafting_seconds();
  if (!done.outcome.ok()) {
    return decoding_->abandon(done.outcome.error()) ? Status() : done.outcome;
  }
  StepLogits logits{.all = rows_.empty() ? done.last : std::span<const float>(rows_),
                    .best = done.best_found,
                    .shape = done.best};
  if (done.best.count > 0) logits.all = {};
  return drawn(decoding_->step_with(logits, seconds));
}

Status RunningText::take_piece(const SessionStep& done, double seconds) {
  statistics_.prefill_seconds += seconds;
  MF_RETURN_IF_ERROR(done.outcome);
  piece_tokens_ += static_cast<int64_t>(done.tokens.size());
  if (std::erase(checkpoints_ahead_, state_->length()) > 0) {
    MF_RETURN_IF_ERROR(state_->add_checkpoint());
  }
  if (!decoding_) tell_progress(0);
  return tokens_left() == 0 ? start_text() : Status();
}

// Each row tells of the token after it; the last one's is drawn.
Status RunningText::note_logprobs(int64_t first_position, std::span<const float> rows) {
  const auto width = static_cast<size_t>(state_->session().model()->engine->spec().vocab_size);
  for (auto next = static_cast<size_t>(first_position) + 1;
       !rows.empty() && next < request_.prompt.size(); ++next) {
    prompt_logprobs_.push_back(token_logprobs(rows.first(width), request_.prompt[next],
                                              std::max(request_.top_logprobs, 0)));
    rows = rows.subspan(width);
  }
  return {};
}

Status RunningText::start_text() {
  is_at_end_ = true;
  Session& session = state_->session();
  if (decoding_) {
    decoding_->move_to(session);
    return draw_masked();
  }
  if (request_.prompt_logprobs) receiver_->on_prompt_logprobs(prompt_logprobs_);
  if (request_.tokens_max == 0) {
    end_ = FinishReason::kTokensMax;
    return {};
  }
  MF_RETURN_IF_ERROR(session.set_sampler(request_.sampler));
  MF_ASSIGN_OR_RETURN(
      decoding_, Decoding::start(session,
                                 {.tokens_max = request_.tokens_max,
                                  .stop_tokens = request_.stop_tokens,
                                  .ignore_model_stop_tokens = request_.ignore_model_stop_tokens,
                                  .tokens_min = request_.tokens_min,
                                  .allowed_tokens = request_.allowed_tokens,
                                  .top_logprobs = request_.top_logprobs,
                                  .sampled_logprobs = request_.sampled_logprobs,
                                  .skip_special = false,
                                  .constrained = masks_.text(),
                                  .follows_apart = true},
                                 [this](const DrawnToken& drawn) { return tell(drawn); }));
  return draw_masked();
}

// After the session's logits, which wait with the text.
Status RunningText::draw_masked() {
  if (masks_.job() == nullptr) return drawn(decoding_->step());
  draws_later_ = true;
  return {};
}

bool RunningText::waits_for_mask() const {
  return draws_later_ || (decoding_ && decoding_->followed());
}

Status RunningText::settle() {
  MF_RETURN_IF_ERROR(masks_.take());
  if (std::exchange(draws_later_, false)) return drawn(decoding_->step());
  if (!decoding_ || !decoding_->followed()) return {};  // the prompt is not at its end
  const Status told = decoding_->tell_followed();
  if (decoding_->end()) end_ = decoding_->end();
  return told;
}

Status RunningText::drawn(Status drawn) {
  if (drawn.ok()) is_alone_ = false;
  if (drawn.ok() && decoding_->followed()) {
    std::vector<TokenId> drafts;
    if (masks_.looks_ahead()) drafts = decoding_->drafts_ahead();
    masks_.submit(decoding_->followed(), std::move(drafts));
  }
  if (decoding_->end()) end_ = decoding_->end();
  return drawn;
}

std::optional<FinishReason> RunningText::tell(const DrawnToken& drawn) {
  if (!first_token_seconds_) first_token_seconds_ = seconds_since(submitted_);
  if (!drawn.is_stop) {
    tokens_.push_back(drawn.token);
    ++statistics_.generated_tokens;
  }
  const bool is_last = decoding_->end().has_value();
  DrawnToken told = drawn;
  std::string text;
  if (is_last) {
    text = std::string(drawn.text) + decoding_->rest();
    told.text = text;
  }
  const uint64_t resumes = signals_.resumes();
  const Verdict verdict = receiver_->on_token(told);
  if (is_last) return std::nullopt;
  if (signals_.stop_token().stop_requested()) return FinishReason::kCancelled;
  if (verdict.stop) return FinishReason::kStopString;
  decoding_->force(verdict.forced);
  if (verdict.park) parked_at_ = resumes;
  return std::nullopt;
}

}  // namespace moeflux
