#include "schedule/running_text.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace moeflux {
namespace {

double seconds_since(RunningText::Clock::time_point begin) {
  return std::chrono::duration<double>(RunningText::Clock::now() - begin).count();
}

}  // namespace

RunningText::RunningText(TextRequestId id, TextRequest request,
                         std::shared_ptr<TextReceiver> receiver)
    : id_(id),
      request_(std::move(request)),
      receiver_(std::move(receiver)),
      tokens_(request_.prompt) {
  statistics_.prompt_tokens = prompt_length();
}

int64_t RunningText::processed_tokens() const {
  if (is_at_end_) return prompt_length();
  return state_ ? std::min(state_->length(), prompt_length()) : 0;
}

TextWork RunningText::work() const {
  return {.prompt_tokens = piece_tokens_,
          .generated_tokens = statistics_.generated_tokens,
          .decode_steps = decoding_ ? decoding_->steps() : 0,
          .prefill_seconds = statistics_.prefill_seconds,
          .decode_seconds = statistics_.decode_seconds,
          .first_token_seconds = first_token_seconds_};
}

void RunningText::tell_position(int64_t queue_position) {
  if (told_position_ == queue_position) return;
  told_position_ = queue_position;
  tell_progress(queue_position);
}

void RunningText::tell_progress(int64_t queue_position) {
  receiver_->on_progress({.queue_position = queue_position,
                          .total = prompt_length(),
                          .cached = statistics_.cached_tokens,
                          .processed = processed_tokens(),
                          .seconds = statistics_.prefill_seconds});
}

void RunningText::note_begin() {
  if (began_) return;
  began_ = Clock::now();
  statistics_.queued_seconds = seconds_since(submitted_);
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
  for (const int64_t point : {branch, prompt_length() - 1}) {
    if (point > state_->length() && point < end) checkpoints_ahead_.push_back(point);
  }
  std::ranges::sort(checkpoints_ahead_);
}

void RunningText::drop_state() {
  state_.reset();
  checkpoints_ahead_.clear();
  is_at_end_ = false;
  draws_later_ = false;
  // All of the prompt is evaluated again.
  prompt_logprobs_.clear();
}

void RunningText::go_on_alone() {
  drop_state();
  is_alone_ = true;
}

// A prompt whose logits are told would lack those of tokens that its snapshot has, and one whose
// first token is still to be drawn those of its last.
void RunningText::preempt() {
  is_preempted_ = true;
  since_ = Clock::now();
  if (!state_) return;
  if (!draws_later_ && (is_at_end_ || !wants_all_logits())) {
    Result<std::vector<std::byte>> saved = state_->session().save();
    if (saved.ok()) saved_ = std::move(*saved);
  }
  drop_state();
}

Status RunningText::restore(std::shared_ptr<OpenModel> model) {
  const std::vector<std::byte> saved = std::exchange(saved_, {});
  MF_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, Session::create(std::move(model)));
  MF_RETURN_IF_ERROR(session->load(saved));
  state_.emplace(std::move(session));
  plan_checkpoints(0);
  return {};
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
  MF_CHECK(decoding_->pending());
  drawn_ = *decoding_->pending();
  SessionStep part{.session = state_->shared_session(),
                   .tokens = {&drawn_, 1},
                   .phase = StepPhase::kDecode,
                   .stop = stop_.get_token()};
  // A constraint may forbid the best.
  if (request_.constraint == nullptr) part.best = decoding_->best_needed();
  part.keeps_logits = false;
  return part;
}

SessionStep RunningText::piece_part(int64_t tokens) {
  const auto begin = static_cast<size_t>(state_->length());
  const bool is_last = begin + static_cast<size_t>(tokens) == tokens_.size();
  SessionStep part{.session = state_->shared_session(),
                   .tokens = std::span(tokens_).subspan(begin, static_cast<size_t>(tokens)),
                   .stop = stop_.get_token(),
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
  statistics_.decode_seconds += seconds;
  MF_RETURN_IF_ERROR(done.outcome);
  LastLogits logits{.all = done.last, .best = done.best_found, .best_of = done.best.of};
  if (done.best.count > 0) logits.all = {};
  return draw(&logits);
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
                                  .constrained = constrained_,
                                  .follows_apart = true},
                                 [this](const DrawnToken& drawn) { return tell(drawn); }));
  return draw_masked();
}

// After the session's logits, which wait with the text.
Status RunningText::draw_masked() {
  if (mask_ == nullptr) return draw(nullptr);
  draws_later_ = true;
  return {};
}

void RunningText::begin_masks(SchedulerMasks& masks) {
  if (request_.constraint == nullptr || constrained_ != nullptr) return;
  masks_ = &masks;
  constrained_ = ConstrainedText::make(request_.constraint);
  mask_ = masks_->submit(constrained_, std::nullopt, mask_pace_.kind());
}

bool RunningText::waits_for_mask() const {
  return draws_later_ || (decoding_ && decoding_->followed());
}

Status RunningText::settle() {
  MF_CHECK(mask_ != nullptr && mask_->is_done);
  const std::shared_ptr<const MaskJob> mask = std::exchange(mask_, nullptr);
  mask_pace_.note(mask->taken);
  MF_RETURN_IF_ERROR(mask->outcome);
  if (std::exchange(draws_later_, false)) return draw(nullptr);
  if (!decoding_ || !decoding_->followed()) return {};  // the prompt is not at its end
  const Status told = decoding_->tell_followed();
  if (decoding_->end()) end_ = decoding_->end();
  return told;
}

void RunningText::stop_mask() const {
  if (mask_ != nullptr) constrained_->stop();
}

// After the logits, or after the session's own.
Status RunningText::draw(const LastLogits* logits) {
  const Status drawn = logits == nullptr ? decoding_->step() : decoding_->step_with(*logits);
  if (drawn.ok()) is_alone_ = false;
  if (drawn.ok() && decoding_->followed()) {
    mask_ = masks_->submit(constrained_, decoding_->followed(), mask_pace_.kind());
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
  const uint64_t resumes = resumes_;
  const Verdict verdict = receiver_->on_token(told);
  if (is_last) return std::nullopt;
  if (is_cancelled()) return FinishReason::kCancelled;
  if (verdict.stop) return FinishReason::kStopString;
  decoding_->force(verdict.forced);
  if (verdict.park) parked_at_ = resumes;
  return std::nullopt;
}

}  // namespace moeflux
