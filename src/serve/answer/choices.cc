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
  target_.response->when_closed(later(&Scheduler::cancel, std::move(ids)));
}

// The scheduler's thread tells of it: what makes the answer's words is that one's.
void Choices::stop(ApiError why) {
  Ids ids;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = std::move(why);
    ids = ids_;
  }
  if (!ids) return;
  for (const TextRequestId id : *ids) scheduler_.cancel(id);
}

void Choices::progress(size_t choice, const PromptProgress& progress) {
  write(encoder_->progress(choice, progress));
}

bool Choices::tell(const AnswerDelta& delta) { return write(encoder_->delta(delta)); }

bool Choices::write(std::string bytes) {
  if (bytes.empty() || !options_.stream) return false;
  Ids ids;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kBegun) return false;
    target_.response->write(std::move(bytes));
    ids = ids_;
  }
  // All of these calls are the scheduler's thread's, so one at a time without the lock too.
  if (target_.response->unsent_bytes() <= kUnsentMax) return false;
  target_.response->when_drained(kUnsentResume, later(&Scheduler::resume, std::move(ids)));
  return true;
}

std::function<void()> Choices::later(void (Scheduler::*what)(TextRequestId), Ids ids) {
  return [self = weak_from_this(), what, ids = std::move(ids)] {
    const auto choices = self.lock();
    if (!choices) return;
    for (const TextRequestId id : *ids) (choices->scheduler_.*what)(id);
  };
}

void Choices::end_choice(size_t choice, AnswerPart answer) {
  target_.response->count_tokens(answer.statistics.prompt_tokens,
                                 answer.statistics.generated_tokens);
  if (answer.statistics.reason == FinishReason::kCancelled) {
    ApiError why = cancelled(target_.response->close_reason());
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) why = *stopped_;
    }
    return fail(why);
  }
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

void Choices::fail(const ApiError& error) {
  Ids ids;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kEnded) return;
    if (options_.stream && state_ == State::kBegun) {
      target_.response->write(encoder_->fail(error));
      target_.response->end();
    } else {
      target_.fail(error);
    }
    state_ = State::kEnded;
    ids = ids_;
  }
  for (const TextRequestId id : *ids) scheduler_.cancel(id);
}

void stop_when_deleted(KeptAnswer& kept, const std::shared_ptr<Choices>& answer) {
  kept.when_deleted([weak = std::weak_ptr<Choices>(answer)] {
    if (const auto choices = weak.lock()) choices->stop(deleted_meanwhile());
  });
}

bool ChoiceReceiver::tell(AnswerDelta delta) {
  delta.choice = choice_;
  return choices_->tell(delta);
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
