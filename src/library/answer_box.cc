#include "library/answer_box.h"

#include <optional>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

// Beyond it a clock might overflow; nobody can tell it from no end.
constexpr int64_t kTimeoutMax = int64_t{1} << 40;

}  // namespace

AnswerBox::AnswerBox(std::function<void()> on_ready, bool head_only)
    : head_only_(head_only), on_ready_(std::move(on_ready)) {}

std::shared_ptr<serve::Response> AnswerBox::response(const std::shared_ptr<AnswerBox>& box) {
  return {box.get(), [box](serve::Response*) { box->give_up(); }};
}

Result<AnswerPiece> AnswerBox::take(int64_t timeout_ms) {
  std::optional<Clock::time_point> deadline;
  if (timeout_ms >= 0 && timeout_ms < kTimeoutMax) {
    deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  }
  std::unique_lock lock(mutex_);
  bool is_late = false;
  while (!closed_ && !has_news() && !is_late) {
    if (is_drained()) {  // the service waits for it, and has nothing to write before
      const std::function<void()> drained = std::exchange(drained_, nullptr);
      lock.unlock();
      drained();
      lock.lock();
    } else if (!deadline) {
      changed_.wait(lock);
    } else {
      is_late = changed_.wait_until(lock, *deadline) == std::cv_status::timeout;
    }
  }
  if (closed_) return make_error(ErrorCode::kCancelled, "the answer was aborted");
  if (given_up_ && pending_.empty()) {
    return make_error(ErrorCode::kFailedPrecondition, "the service gave up the answer");
  }
  AnswerPiece piece = take_locked();
  if (!is_drained()) return piece;
  const std::function<void()> drained = std::exchange(drained_, nullptr);
  lock.unlock();
  drained();
  return piece;
}

AnswerPiece AnswerBox::take_locked() {
  ready_ = false;
  begun_told_ = status_ != 0;
  return {.status = status_,
          .ended = ended_,
          .headers = headers_,
          .bytes = std::exchange(pending_, {}),
          .keep_alive = keep_alive_,
          .keep_alive_interval = keep_alive_interval_};
}

bool AnswerBox::has_news() const {
  return !pending_.empty() || ended_ || given_up_ || (status_ != 0 && !begun_told_);
}

void AnswerBox::abort() {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  pending_.clear();
  const std::function<void()> closed = std::exchange(when_closed_, nullptr);
  // A sender that goes on without this peer is not paused any longer.
  const std::function<void()> drained = std::exchange(drained_, nullptr);
  wake(lock);
  lock.unlock();
  if (closed) closed();
  if (drained) drained();
}

void AnswerBox::silence() {
  std::unique_lock lock(mutex_);
  on_ready_ = nullptr;
  changed_.wait(lock, [&] { return calls_of_on_ready_ == 0; });
}

bool AnswerBox::is_over() const {
  const std::lock_guard lock(mutex_);
  return closed_ || ended_ || given_up_;
}

void AnswerBox::wake(std::unique_lock<std::mutex>& lock) {
  changed_.notify_all();
  if (ready_ || on_ready_ == nullptr) return;
  ready_ = true;
  const std::function<void()> on_ready = on_ready_;
  ++calls_of_on_ready_;
  lock.unlock();
  on_ready();
  lock.lock();
  --calls_of_on_ready_;
  changed_.notify_all();
}

void AnswerBox::send(int status, serve::Headers headers, std::string body) {
  std::unique_lock lock(mutex_);
  if (closed_ || ended_) return;
  status_ = status;
  headers_ = std::move(headers);
  if (!head_only_) pending_ = std::move(body);
  ended_ = true;
  wake(lock);
}

void AnswerBox::begin(int status, serve::Headers headers) {
  std::unique_lock lock(mutex_);
  if (closed_ || ended_) return;
  status_ = status;
  headers_ = std::move(headers);
  wake(lock);
}

void AnswerBox::write(std::string bytes) {
  std::unique_lock lock(mutex_);
  if (closed_ || ended_ || bytes.empty()) return;
  pending_ += bytes;
  wake(lock);
}

void AnswerBox::end() {
  std::unique_lock lock(mutex_);
  if (closed_ || ended_) return;
  ended_ = true;
  when_closed_ = nullptr;
  wake(lock);
}

void AnswerBox::give_up() {
  std::unique_lock lock(mutex_);
  when_closed_ = nullptr;
  drained_ = nullptr;
  if (closed_ || ended_) return;
  given_up_ = true;
  wake(lock);
}

void AnswerBox::keep_alive(std::string bytes, std::chrono::milliseconds interval) {
  const std::lock_guard lock(mutex_);
  keep_alive_ = std::move(bytes);
  keep_alive_interval_ = interval;
}

size_t AnswerBox::unsent_bytes() const {
  const std::lock_guard lock(mutex_);
  return pending_.size();
}

void AnswerBox::when_drained(size_t bytes, std::function<void()> drained) {
  std::unique_lock lock(mutex_);
  if (closed_) {
    lock.unlock();
    return drained();
  }
  drained_at_ = bytes;
  drained_ = std::move(drained);
  // Taken meanwhile: somebody has to come once more.
  if (is_drained()) wake(lock);
}

void AnswerBox::when_closed(std::function<void()> closed) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    if (!closed_) {
      when_closed_ = std::move(closed);
      return;
    }
  }
  closed();
}

bool AnswerBox::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace moeflux
