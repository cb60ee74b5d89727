#include "serve/choices.h"

#include <chrono>

#include "serve/openai_common.h"

namespace moeflux::serve {
namespace {

constexpr std::chrono::milliseconds kKeepAliveInterval{5000};
/// What a client may have unread before its texts are parked, and what they go on at.
constexpr size_t kUnsentMax = size_t{1} << 20;
constexpr size_t kUnsentResume = size_t{1} << 18;

}  // namespace

Choices::Choices(Scheduler& scheduler, std::shared_ptr<Response> response, bool stream)
    : scheduler_(scheduler), response_(std::move(response)), stream_(stream) {}

void Choices::start(std::vector<ChoiceJob> jobs) {
  std::unique_lock lock(mutex_);
  running_ = jobs.size();
  for (auto& [request, receiver] : jobs) {
    const Result<TextRequestId> id = scheduler_.submit(std::move(request), std::move(receiver));
    if (!id.ok()) {
      lock.unlock();
      return fail(api_error(id.error()));
    }
    ids_.push_back(*id);
  }
  state_ = State::kBegun;
  if (stream_) {
    response_->begin(200, {{"Content-Type", "text/event-stream; charset=utf-8"},
                           {"Cache-Control", "no-store"},
                           {"X-Accel-Buffering", "no"}});
    response_->keep_alive(": keep-alive\n\n", kKeepAliveInterval);
    for (const Json& frame : first_frames()) response_->write(data_frame(frame));
  }
  lock.unlock();
  response_->when_closed([self = weak_from_this()] {
    if (const auto choices = self.lock()) choices->cancel_all();
  });
}

bool Choices::write_frame(const Json& frame) {
  const std::string bytes = data_frame(frame);
  const std::lock_guard lock(mutex_);
  if (state_ != State::kBegun) return false;
  response_->write(bytes);
  if (response_->unsent_bytes() <= kUnsentMax) return false;
  response_->when_drained(kUnsentResume, [self = weak_from_this()] {
    if (const auto choices = self.lock()) choices->resume_all();
  });
  return true;
}

void Choices::end_choice(FinishReason reason) {
  if (reason == FinishReason::kCancelled) {
    return fail({.status = 503,
                 .type = "unavailable_error",
                 .message = "the answer was cancelled: the server is stopping"});
  }
  const std::lock_guard lock(mutex_);
  if (state_ == State::kEnded || --running_ > 0) return;
  state_ = State::kEnded;
  if (!stream_) {
    response_->send(200, {{"Content-Type", "application/json"}}, dump_json(whole_answer()));
    return;
  }
  for (const Json& frame : last_frames()) response_->write(data_frame(frame));
  response_->write("data: [DONE]\n\n");
  response_->end();
}

void Choices::fail(const ApiError& error) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kEnded) return;
    if (stream_ && state_ == State::kBegun) {
      response_->write(data_frame(error_body(error)));
      response_->end();
    } else {
      Headers headers = {{"Content-Type", "application/json"}};
      if (error.status == 429) headers.emplace_back("Retry-After", "1");
      response_->send(error.status, std::move(headers), dump_json(error_body(error)));
    }
    state_ = State::kEnded;
  }
  cancel_all();
}

void Choices::cancel_all() {
  for (const TextRequestId id : ids()) scheduler_.cancel(id);
}

void Choices::resume_all() {
  for (const TextRequestId id : ids()) scheduler_.resume(id);
}

std::vector<TextRequestId> Choices::ids() {
  const std::lock_guard lock(mutex_);
  return ids_;
}

}  // namespace moeflux::serve
