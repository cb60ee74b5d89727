#include "serve/choices.h"

#include "serve/wire_json.h"

namespace moeflux::serve {
namespace {

/// What a client may have unread before its texts are parked, and what they go on at.
constexpr size_t kUnsentMax = size_t{1} << 20;
constexpr size_t kUnsentResume = size_t{1} << 18;

}  // namespace

Choices::Choices(Scheduler& scheduler, AnswerTarget target, bool stream, JobThread* ends_on)
    : scheduler_(scheduler), target_(std::move(target)), stream_(stream), ends_on_(ends_on) {}

void Choices::start(std::vector<ChoiceJob> jobs) {
  std::unique_lock lock(mutex_);
  running_ = jobs.size();
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
  if (stream_) {
    target_.begin_stream();
    target_.response->write(first_bytes());
  }
  lock.unlock();
  target_.response->when_closed(later(&Scheduler::cancel, std::move(ids)));
}

bool Choices::write(std::string bytes) {
  if (bytes.empty()) return false;
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

void Choices::end_choice(FinishReason reason) {
  if (reason == FinishReason::kCancelled) {
    return fail({.status = 503,
                 .type = "unavailable_error",
                 .message = "the answer was cancelled: the server is stopping"});
  }
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kEnded || --running_ > 0) return;
  }
  if (ends_on_ == nullptr) return end();
  ends_on_->add([self = shared_from_this()] { self->end(); });
}

void Choices::end() {
  before_end();
  const std::lock_guard lock(mutex_);
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  if (!stream_) {
    target_.response->send(200, {{"Content-Type", "application/json"}}, dump_json(whole_answer()));
    return;
  }
  target_.response->write(last_bytes());
  target_.response->end();
}

void Choices::fail(const ApiError& error) {
  Ids ids;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kEnded) return;
    if (stream_ && state_ == State::kBegun) {
      target_.response->write(error_bytes(error));
      target_.response->end();
    } else {
      target_.fail(error);
    }
    state_ = State::kEnded;
    ids = ids_;
  }
  for (const TextRequestId id : *ids) scheduler_.cancel(id);
}

}  // namespace moeflux::serve
