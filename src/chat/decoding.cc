#include "chat/decoding.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "chat/session.h"

namespace moeflux {

Result<std::unique_ptr<Decoding>> Decoding::start(Session& session, DecodingOptions options,
                                                  TokenSink sink) {
  MF_ASSIGN_OR_RETURN(Sampler sampler, session.make_sampler(options.ignore_model_stop_tokens));
  TextLimits limits{
      .tokens_max = options.tokens_max,
      .places = session.engine().memory_plan().context_length - session.sequence_->length(),
      .stop_tokens = std::move(options.stop_tokens),
      .tokens_min = options.tokens_min,
      .allowed_tokens = std::move(options.allowed_tokens),
      .top_logprobs = options.top_logprobs,
      .sampled_logprobs = options.sampled_logprobs,
      .skip_special = options.skip_special,
      .follows_apart = options.follows_apart};
  if (!options.ignore_model_stop_tokens) {
    const std::vector<TokenId>& more = session.model_->text.defaults.stop_tokens;
    limits.stop_tokens.insert(limits.stop_tokens.end(), more.begin(), more.end());
  }
  return std::unique_ptr<Decoding>(new Decoding(session, std::move(sampler), std::move(limits),
                                                std::move(sink), std::move(options.constrained)));
}

Decoding::Decoding(Session& session, Sampler sampler, TextLimits limits, TokenSink sink,
                   std::shared_ptr<ConstrainedText> constrained)
    : session_(nullptr),
      sampler_(std::move(sampler)),
      apart_(limits.follows_apart ? constrained : nullptr),
      draft_options_(session.model_->drafts),
      overwrites_state_(session.engine().loaded().has_fixed_states()),
      text_(session.model_->text.tokenizer.ok() ? &*session.model_->text.tokenizer : nullptr,
            sampler_, std::move(limits), std::move(sink), std::move(constrained)) {
  if (draft_options_.mode != DraftMode::kOff && draft_options_.make_source) {
    source_ = draft_options_.make_source();
  }
  if (draft_options_.mode == DraftMode::kAuto) price_ = session.model_->draft_price();
  move_to(session);
}

void Decoding::move_to(Session& session) {
  session_ = &session;
  first_ = std::exchange(session.extra_.logits, {});
  rows_ = {.all = first_};
  first_row_ = last_row_ = 0;
  pending_.reset();
  lost_.clear();
  drafts_.clear();
  found_.reset();
  checkpoint_.reset();
}

Status Decoding::step() { return pending_ ? eval_step() : draw(); }

Status Decoding::step_with(const StepLogits& logits, double seconds) {
  MF_CHECK(pending_ && !step_tokens_.empty());
  rows_ = logits;
  first_row_ = drafts_.empty() ? 0 : step_tokens_.size() - 1 - drafts_.size();
  lost_.clear();
  pending_.reset();
  const int64_t before = counts_.accepted;
  const DraftPrice::Step step = {
      .rows = static_cast<int64_t>(step_tokens_.size()),
      .drafted = static_cast<int64_t>(drafts_.size()),
      .seconds = seconds,
  };
  const Status drawn = draw();
  note_step(step, counts_.accepted - before);
  return drawn;
}

void Decoding::note_step(DraftPrice::Step step, int64_t accepted) {
  const Proposed proposed = std::exchange(proposed_, {});
  step.accepted = accepted;
  step.origin = origin_;
  if (origin_ == DraftOrigin::kOther) step.confidences = proposed.draft.confidences;
  step.drafting_seconds = proposed.seconds;
  step.proposed = static_cast<int64_t>(proposed.draft.tokens.size());
  step.follow_seconds = proposed.draft.follow_seconds;
  steps_ += 1 + accepted;
  counts_.drafts += step.drafted > 0 ? 1 : 0;
  const double drafting = step.drafting_seconds + step.follow_seconds;
  counts_.drafting_seconds += drafting;
  if ((step.rows > 1 || drafting > 0.0) && price_.plain_seconds() > 0.0) {
    counts_.seconds += step.seconds + drafting;
    counts_.plain_seconds += static_cast<double>(1 + accepted) * price_.plain_seconds();
  }
  price_.note(step);
  if (draft_options_.mode == DraftMode::kAuto && text_.end()) session_->model_->publish(price_);
}

BestLogits Decoding::best_needed(bool may_rule) {
  return text_.best_needed(session_->engine().spec().vocab_size, may_rule && drafts_.empty());
}

// --- Drafts ---

std::span<const TokenId> Decoding::begin_step(int64_t tokens_max) {
  MF_CHECK(pending_);
  step_tokens_ = lost_;
  step_tokens_.push_back(*pending_);
  drafts_.clear();
  plan_drafts(tokens_max - static_cast<int64_t>(step_tokens_.size()));
  step_tokens_.insert(step_tokens_.end(), drafts_.begin(), drafts_.end());
  return step_tokens_;
}

// The index has what was accepted alone, which is never taken back.
void Decoding::index_text() {
  if (!index_) index_.emplace(draft_options_.match_min);
  const std::span<const TokenId> evaluated = session_->tokens();
  const auto known = static_cast<size_t>(index_->length());
  if (known < evaluated.size()) index_->append(evaluated.subspan(known));
  const size_t ahead = known - std::min(known, evaluated.size());
  index_->append(std::span(step_tokens_).subspan(ahead));
}

// As many as fit behind the step's tokens, and none where forced tokens come. Repetitions come
// first: they are found for nothing.
std::vector<TokenId> Decoding::find_drafts(int64_t tokens_max) {
  if (!text_.forced().empty()) return {};
  std::vector<TokenId> drafts = find_repeats(tokens_max);
  if (!drafts.empty()) return drafts;
  const int64_t most = worth_asking(tokens_max);
  if (most == 0) return {};
  const auto begin = std::chrono::steady_clock::now();
  Result<Draft> draft =
      source_->draft({.text = index_->text(), .tokens_max = most, .session = *session_});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return take_answer(std::move(draft), seconds.count());
}

std::vector<TokenId> Decoding::find_repeats(int64_t tokens_max) {
  index_text();
  Draft draft = index_->draft(tokens_max);
  if (draft_options_.mode == DraftMode::kAuto) {
    const int64_t worth = price_.worth_repeat({.confidences = draft.confidences,
                                               .lost_rows = std::ssize(lost_),
                                               .is_redone = overwrites_state_});
    draft.tokens.resize(static_cast<size_t>(worth));
  }
  if (!draft.tokens.empty()) origin_ = DraftOrigin::kText;
  return std::move(draft.tokens);
}

int64_t Decoding::worth_asking(int64_t tokens_max) {
  if (source_ == nullptr) return 0;
  if (draft_options_.mode != DraftMode::kAuto) return tokens_max;
  return price_.worth_asking(tokens_max);
}

std::optional<DraftSource::Ask> Decoding::ask(int64_t tokens_max) {
  MF_CHECK(pending_);
  step_tokens_ = lost_;
  step_tokens_.push_back(*pending_);
  const int64_t most = drafts_max(tokens_max - static_cast<int64_t>(step_tokens_.size()));
  if (most <= 0 || apart_ != nullptr || !text_.forced().empty()) return std::nullopt;
  found_ = find_repeats(most);
  const int64_t wanted = found_->empty() ? worth_asking(most) : 0;
  if (wanted == 0) return std::nullopt;
  return DraftSource::Ask{
      .source = *source_,
      .query = {.text = index_->text(), .tokens_max = wanted, .session = *session_}};
}

void Decoding::answer(Result<Draft> draft, double seconds) {
  found_ = take_answer(std::move(draft), seconds);
}

std::vector<TokenId> Decoding::take_answer(Result<Draft> draft, double seconds) {
  origin_ = DraftOrigin::kOther;
  if (!draft.ok()) {
    source_.reset();
    if (draft_options_.on_failure) {
      draft_options_.on_failure("drafts end for a text: " + draft.error().to_string());
    }
    return {};
  }
  proposed_ = {.draft = std::move(*draft), .seconds = 0.0};
  proposed_.seconds = std::max(0.0, seconds - proposed_.draft.follow_seconds);
  std::vector<TokenId> drafts = proposed_.draft.tokens;
  if (draft_options_.mode == DraftMode::kAuto && !proposed_.draft.confidences.empty()) {
    drafts.resize(static_cast<size_t>(price_.worth_rows(proposed_.draft.confidences)));
  }
  return drafts;
}

int64_t Decoding::drafts_max(int64_t tokens_max) const {
  if (draft_options_.mode == DraftMode::kOff) return 0;
  const auto end = session_->sequence_->length() + static_cast<int64_t>(step_tokens_.size());
  return std::min({tokens_max, draft_options_.tokens_max, text_.tokens_left() - 1,
                   session_->engine().memory_plan().context_length - end});
}

std::vector<TokenId> Decoding::drafts_ahead() {
  if (apart_ == nullptr || !pending_) return {};
  step_tokens_ = lost_;
  step_tokens_.push_back(*pending_);
  const int64_t most = drafts_max(kDraftTokensMax);
  return most > 0 ? find_drafts(most) : std::vector<TokenId>();
}

void Decoding::plan_drafts(int64_t tokens_max) {
  std::optional<std::vector<TokenId>> found = std::exchange(found_, std::nullopt);
  const int64_t most = drafts_max(tokens_max);
  if (most <= 0) return;
  const std::deque<TokenId>& forced = text_.forced();
  if (apart_ != nullptr) {
    if (!forced.empty()) return;
    const std::span<const TokenId> ahead = apart_->ahead();
    const size_t count = std::min(ahead.size(), static_cast<size_t>(most));
    drafts_.assign(ahead.begin(), ahead.begin() + static_cast<ptrdiff_t>(count));
  } else {
    drafts_ = found ? std::move(*found) : find_drafts(most);
    MF_CHECK(std::ssize(drafts_) <= most);
    const auto certain = std::min(static_cast<ptrdiff_t>(forced.size()), ptrdiff_t{most});
    drafts_.insert(drafts_.end(), forced.begin(), forced.begin() + certain);
  }
  if (!drafts_.empty()) begin_checkpoint();
}

// Pages and windows forget a step's tokens; what has a fixed size is overwritten by them.
void Decoding::begin_checkpoint() {
  if (!overwrites_state_) return;
  const Result<CheckpointId> made = session_->engine().checkpoint(*session_->sequence_);
  if (made.ok()) {
    checkpoint_ = *made;
  } else {
    drafts_.clear();
  }
}

bool Decoding::abandon(const Error& error) {
  const bool had_drafts = !std::exchange(drafts_, {}).empty();
  const bool is_memory = error.code() == ErrorCode::kResourceExhausted;
  step_tokens_.clear();
  proposed_ = {};
  Engine& engine = session_->engine();
  Status mended;
  if (had_drafts && is_memory) {
    mended = checkpoint_ ? engine.restore(*session_->sequence_, *checkpoint_)
                         : engine.truncate(*session_->sequence_, session_->sequence_->length());
    draft_options_.mode = DraftMode::kOff;
  }
  if (checkpoint_) (void)engine.drop(*session_->sequence_, *std::exchange(checkpoint_, {}));
  return had_drafts && is_memory && mended.ok();
}

// --- Rows ---

LastLogits Decoding::row(size_t i) const {
  if (rows_.shape.is_ruled) {
    return {.best = rows_.best,
            .best_of = rows_.shape.of,
            .is_ruled = true,
            .allowed = rows_.shape.allowed};
  }
  if (rows_.shape.count > 0) {
    const auto count = static_cast<size_t>(rows_.shape.count);
    return {.best = rows_.best.subspan((first_row_ + i) * count, count), .best_of = rows_.shape.of};
  }
  if (rows_.all.empty()) return {};
  const auto width = static_cast<size_t>(session_->engine().spec().vocab_size);
  return {.all = rows_.all.subspan((first_row_ + i) * width, width)};
}

// Where drawing fails, the sequence has no draft either that was not accepted.
Status Decoding::draw() {
  size_t accepted = 0;
  std::optional<TokenId> token;
  Status drawn;
  while (true) {
    drawn = draw_row(accepted, token);
    last_row_ = accepted;
    const bool goes_on =
        drawn.ok() && !text_.end() && accepted < drafts_.size() && token == drafts_[accepted];
    if (!goes_on) break;
    ++accepted;
  }
  counts_.drafted += static_cast<int64_t>(drafts_.size());
  counts_.accepted += static_cast<int64_t>(accepted);
  const Status settled = settle(accepted);
  MF_RETURN_IF_ERROR(drawn);
  MF_RETURN_IF_ERROR(settled);
  const int64_t length = session_->sequence_->length() + static_cast<int64_t>(lost_.size());
  if (length < session_->engine().memory_plan().context_length) pending_ = token;
  return {};
}

Status Decoding::draw_row(size_t i, std::optional<TokenId>& token) {
  LastLogits logits = row(i);
  MF_ASSIGN_OR_RETURN(const bool needs_all, text_.needs_all(logits));
  if (needs_all) {
    logits = {};
    MF_ASSIGN_OR_RETURN(logits.all,
                        session_->engine().last_logits(static_cast<int64_t>(first_row_ + i)));
  }
  MF_ASSIGN_OR_RETURN(token, text_.next(logits));
  return {};
}

// The sequence forgets the drafts that were not accepted. Where it cannot, it goes back to the
// step's beginning, and the next step has these tokens again.
Status Decoding::settle(size_t accepted) {
  const size_t wrong = drafts_.size() - accepted;
  const std::vector<TokenId> tokens = std::exchange(step_tokens_, {});
  drafts_.clear();
  Engine& engine = session_->engine();
  Sequence& sequence = *session_->sequence_;
  const auto checkpoint = std::exchange(checkpoint_, {});
  if (wrong > 0) {
    const int64_t length = sequence.length() - static_cast<int64_t>(wrong);
    if (sequence.can_truncate(length) || !checkpoint) {
      MF_RETURN_IF_ERROR(engine.truncate(sequence, length));
    } else {
      MF_RETURN_IF_ERROR(engine.restore(sequence, *checkpoint, {.keeps_drafts = true}));
      lost_.assign(tokens.begin(), tokens.end() - static_cast<ptrdiff_t>(wrong));
    }
    session_->publish_position();
  }
  return checkpoint ? engine.drop(sequence, *checkpoint) : Status();
}

// --- Evaluation ---

Status Decoding::eval_step() {
  const Engine& engine = session_->engine();
  const int64_t room = std::min(engine.prefill_chunk(), engine.logits_rows());
  std::chrono::steady_clock::time_point begin;
  Status done;
  do {
    begin_step(room);
    begin = std::chrono::steady_clock::now();
    done = eval(step_tokens_, logits_needed(), best_needed(/*may_rule=*/true));
  } while (!done.ok() && abandon(done.error()));
  MF_RETURN_IF_ERROR(done);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return step_with(rows_, seconds.count());
}

// The best logits alone are read, where they are enough.
Status Decoding::eval(std::span<const TokenId> tokens, LogitsMode logits, const BestLogits& best) {
  rows_ = {};
  StepItem item{.sequence = session_->sequence_.get(),
                .tokens = tokens,
                .options = {.logits = logits, .best = best, .phase = StepPhase::kDecode},
                .sink =
                    [this](int64_t, std::span<const float> rows) {
                      rows_.all = rows;
                      return Status();
                    },
                .best = std::move(best_)};
  session_->engine().eval_step(std::span(&item, 1));
  best_ = std::move(item.best);
  MF_RETURN_IF_ERROR(item.outcome);
  if (item.options.best.count > 0) rows_ = {.best = best_, .shape = item.options.best};
  return {};
}

// Tokens whose state the sequence has lost, and the pending one.
Status Decoding::eval_lost(bool with_pending) {
  std::vector<TokenId> tokens = lost_;
  if (with_pending && pending_) tokens.push_back(*pending_);
  if (tokens.empty()) return {};
  first_row_ = last_row_ = 0;
  MF_RETURN_IF_ERROR(eval(tokens, LogitsMode::kLast, best_needed()));
  lost_.clear();
  if (with_pending && std::exchange(pending_, {})) ++steps_;
  return {};
}

Status Decoding::finish(bool keep_last_token) {
  session_->extra_.sampler.progress = sampler_.progress();
  MF_RETURN_IF_ERROR(eval_lost(keep_last_token));
  LastLogits last = row(last_row_);
  if (keep_last_token && last.best_of > 0) {
    MF_ASSIGN_OR_RETURN(
        last.all, session_->engine().last_logits(static_cast<int64_t>(first_row_ + last_row_)));
  }
  session_->extra_.logits.assign(last.all.begin(), last.all.end());
  return {};
}

}  // namespace moeflux
