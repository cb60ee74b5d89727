#include "chat/running_text.h"

#include <algorithm>
#include <string>
#include <utility>

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
  const auto end = static_cast<int64_t>(tokens_.size());
  state_.emplace(std::move(state));
  is_at_end_ = false;
  // Where layers forget, any length will do.
  if (state_->session().model()->engine->shortest_truncation(end) > 0) {
    for (const int64_t point : {branch, prompt_length() - 1}) {
      if (point > length && point < end) checkpoints_ahead_.push_back(point);
    }
    std::ranges::sort(checkpoints_ahead_);
  }
  if (decoding_) return;
  statistics_.cached_tokens = length;
  tell_position(0);
}

void RunningText::drop_state() {
  state_.reset();
  checkpoints_ahead_.clear();
  is_at_end_ = false;
  // All of the prompt is evaluated again.
  prompt_logprobs_.clear();
}

Status RunningText::step() {
  if (is_cancelled()) {
    end_ = FinishReason::kCancelled;
    return {};
  }
  return is_at_end_ ? decode() : eval_piece();
}

int64_t RunningText::piece_end(int64_t begin) const {
  const Engine& engine = *state_->session().model()->engine;
  int64_t end = std::min(begin + engine.prefill_chunk(), static_cast<int64_t>(tokens_.size()));
  for (const int64_t point : checkpoints_ahead_) {
    if (point > begin) end = std::min(end, point);
  }
  return end;
}

Status RunningText::eval_piece() {
  Session& session = state_->session();
  const int64_t begin = state_->length();
  const int64_t end = piece_end(begin);
  const bool is_last = end == static_cast<int64_t>(tokens_.size());
  const bool wants_all = request_.prompt_logprobs && !decoding_;
  EvalOptions options{.logits = is_last ? LogitsMode::kLast : LogitsMode::kNone,
                      .stop = stop_.get_token()};
  if (wants_all) options.logits = LogitsMode::kAll;
  const LogitsSink sink = [&](int64_t first, std::span<const float> rows) {
    return wants_all ? note_logprobs(first, rows) : Status();
  };
  const Clock::time_point before = Clock::now();
  const Status done = session.eval(
      std::span(tokens_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
      options, sink);
  statistics_.prefill_seconds += seconds_since(before);
  piece_tokens_ += state_->length() - begin;
  if (!done.ok() && done.error().code() == ErrorCode::kCancelled) {
    end_ = FinishReason::kCancelled;
    return {};
  }
  MF_RETURN_IF_ERROR(done);
  if (std::erase(checkpoints_ahead_, end) > 0) MF_RETURN_IF_ERROR(state_->add_checkpoint());
  if (!decoding_) tell_progress(0);
  return is_last ? start_text() : Status();
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
    return decode();
  }
  if (request_.prompt_logprobs) receiver_->on_prompt_logprobs(prompt_logprobs_);
  if (request_.tokens_max == 0) {
    end_ = FinishReason::kTokensMax;
    return {};
  }
  MF_RETURN_IF_ERROR(session.set_sampler(request_.sampler));
  std::shared_ptr<ConstrainedText> constrained;
  if (request_.constraint != nullptr) {
    MF_ASSIGN_OR_RETURN(constrained, ConstrainedText::start(request_.constraint));
  }
  MF_ASSIGN_OR_RETURN(
      decoding_, Decoding::start(session,
                                 {.tokens_max = request_.tokens_max,
                                  .stop_tokens = request_.stop_tokens,
                                  .ignore_model_stop_tokens = request_.ignore_model_stop_tokens,
                                  .top_logprobs = request_.top_logprobs,
                                  .skip_special = false,
                                  .constrained = std::move(constrained)},
                                 [this](const DrawnToken& drawn) { return tell(drawn); }));
  return decode();
}

Status RunningText::decode() {
  EvalTimer timer = state_->session().timer();
  timer_ = &timer;
  const Status done = decoding_->step();
  timer_ = nullptr;
  statistics_.decode_seconds += timer.elapsed_seconds();
  if (decoding_->end()) end_ = decoding_->end();
  return done;
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
  const Verdict verdict = timer_->outside([&] { return receiver_->on_token(told); });
  if (is_last) return std::nullopt;
  if (is_cancelled()) return FinishReason::kCancelled;
  if (verdict.stop) return FinishReason::kStopString;
  decoding_->force(verdict.forced);
  if (verdict.park) parked_at_ = resumes;
  return std::nullopt;
}

}  // namespace moeflux
