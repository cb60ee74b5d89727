#include "serve/answer/choices.h"

#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

/// Bytes that a client may have unread before its requests are paused, and at which they are
/// resumed.
constexpr size_t kUnsentMax = size_t{1} << 20;
constexpr size_t kUnsentResume = size_t{1} << 18;

ApiError cancelled(const std::string& reason) {
  if (!reason.empty()) return {.status = 409, .code = "cancelled", .message = reason};
  return {.status = 503,
          .type = "unavailable_error",
          .message = "the answer was cancelled: the server is stopping"};
}

}  // namespace

Choices::Choices(Scheduler& scheduler, AnswerTarget target, std::unique_ptr<AnswerEncoder> encoder,
                 ChoicesOptions options)
    : scheduler_(scheduler),
      door_(scheduler.door()),
      target_(std::move(target)),
      options_(options),
      encoder_(std::move(encoder)),
      begin_(encoder_->begin()) {}

void Choices::start(std::vector<ChoiceJob> jobs) {
  std::unique_lock lock(mutex_);
  if (stopped_) {
    state_ = State::kEnded;
    return target_.fail(*stopped_);
  }
  running_ = jobs.size();
  answers_.resize(jobs.size());
  auto ids = std::make_shared<std::vector<TextRequestId>>();
  ids_ = ids;
  for (auto& [request, receiver] : jobs) {
    request.is_further = !ids->empty();
    const Result<TextRequestId> id = scheduler_.submit(std::move(request), std::move(receiver));
    if (!id.ok()) {
      lock.unlock();
      return fail(api_error(id.error()));
    }
    ids->push_back(*id);
  }
  state_ = State::kBegun;
  if (options_.stream) {
    target_.begin_stream();
    target_.response->write(begin_);
  }
  lock.unlock();
  target_.response->when_closed(later(&SchedulerDoor::cancel, std::move(ids)));
}

// The scheduler's thread hears of it: what makes the answer's words is not ours.
void Choices::stop(ApiError why) {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = std::move(why);
  }
  cancel_all();
}

void Choices::cancel_all() {
  Ids ids;
  {
    const std::lock_guard lock(mutex_);
    ids = ids_;
  }
  if (ids) later(&SchedulerDoor::cancel, std::move(ids))();
}

std::function<void()> Choices::later(Call what, Ids ids) const {
  return [door = door_, what, ids = std::move(ids)] {
    for (const TextRequestId id : *ids) (*door.*what)(id);
  };
}

void Choices::on_it(std::function<void()> told) {
  if (options_.tells_on == nullptr) return told();
  options_.tells_on->add(std::move(told));
}

void Choices::progress(size_t choice, const PromptProgress& progress) {
  on_it([self = shared_from_this(), choice, progress] {
    self->write(self->encoder_->progress(choice, progress));
  });
}

bool Choices::tell(AnswerDelta delta) {
  on_it([self = shared_from_this(), delta = std::move(delta)] {
    self->write(self->encoder_->delta(delta));
  });
  return is_full_;
}

// A text is resumed after it can no longer be found full: one that was parked meanwhile goes on.
void Choices::write(std::string bytes) {
  if (bytes.empty() || !options_.stream) return;
  Ids ids;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kBegun) return;
    target_.response->write(std::move(bytes));
    ids = ids_;
  }
  if (target_.response->unsent_bytes() <= kUnsentMax || is_full_.exchange(true)) return;
  target_.response->when_drained(
      kUnsentResume, [weak = weak_from_this(), resume = later(&SchedulerDoor::resume, ids)] {
        if (const auto self = weak.lock()) self->is_full_ = false;
        resume();
      });
}

void Choices::end_choice(size_t choice, AnswerPart answer) {
  const bool is_cancelled = answer.statistics.reason == FinishReason::kCancelled;
  if (is_cancelled) cancel_all();
  on_it([self = shared_from_this(), choice, is_cancelled, answer = std::move(answer)]() mutable {
    self->target_.response->count_tokens(answer.statistics.prompt_tokens,
                                         answer.statistics.generated_tokens);
    if (is_cancelled) return self->end_cancelled();
    self->take_choice(choice, std::move(answer));
  });
}

void Choices::end_cancelled() {
  ApiError why = cancelled(target_.response->close_reason());
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) why = *stopped_;
  }
  end_failed(why);
}

void Choices::take_choice(size_t choice, AnswerPart answer) {
  {
    const std::lock_guard lock(mutex_);
    answers_[choice] = std::move(answer);
    if (state_ == State::kEnded || --running_ > 0) return;
  }
  if (options_.ends_on == nullptr) return end();
  options_.ends_on->add([self = shared_from_this()] { self->end(); });
}

void Choices::end() {
  // May wait for a drive.
  std::string last;
  for (const AnswerPart& answer : answers_) last += encoder_->end(answer);
  const std::optional<ApiError> unkept = encoder_->unkept();
  const std::lock_guard lock(mutex_);
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  if (options_.stream) {
    target_.response->write(unkept ? encoder_->fail(*unkept) : std::move(last));
    return target_.response->end();
  }
  Headers headers = {{"Content-Type", "application/json"}};
  Json answer = encoder_->whole();
  if (unkept) {
    answer.update(error_body(*unkept));
    headers.emplace_back("x-should-retry", "false");  // OpenAI's clients would lose the text
  }
  target_.response->send(unkept ? unkept->status : 200, std::move(headers), dump_json(answer));
}

void Choices::fail(ApiError error) {
  cancel_all();
  on_it([self = shared_from_this(), error = std::move(error)] { self->end_failed(error); });
}

void Choices::end_failed(const ApiError& error) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kEnded) return;
  if (options_.stream && state_ == State::kBegun) {
    target_.response->write(encoder_->fail(error));
    target_.response->end();
  } else {
    target_.fail(error);
  }
  state_ = State::kEnded;
}

void stop_when_deleted(KeptAnswer& kept, const std::shared_ptr<Choices>& answer) {
  kept.when_deleted([weak = std::weak_ptr<Choices>(answer)] {
    if (const auto choices = weak.lock()) choices->stop(deleted_meanwhile());
  });
}

bool ChoiceReceiver::tell(AnswerDelta delta) {
  delta.choice = choice_;
  return choices_->tell(std::move(delta));
}

void ChoiceReceiver::end(AnswerPart answer, const TextStatistics& statistics) {
  answer.statistics = statistics;
  // A stop string counts also where it ends with the last token that there is room for.
  const bool is_cut = statistics.reason == FinishReason::kTokensMax ||
                      statistics.reason == FinishReason::kContextFull;
  if (is_cut && !answer.stopped_by.empty()) answer.statistics.reason = FinishReason::kStopString;
  choices_->end_choice(choice_, std::move(answer));
}

}  // namespace moeflux::serve
