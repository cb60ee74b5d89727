#include "chat/turn_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "chat/session.h"

namespace moeflux {
namespace {

// A year: longer waits are without end, and the clock cannot overflow.
constexpr int64_t kTimeoutMaxMs = int64_t{366} * 24 * 3600 * 1000;
// Less than a person notices.
constexpr std::chrono::milliseconds kAskedEvery{50};

}  // namespace

void TurnQueue::cancel(const Session& session) {
  const std::lock_guard lock(mutex_);
  if (running_ != nullptr) running_->stop(session);
  std::erase_if(waiting_, [&](Turn* turn) {
    const bool cancelled = turn->stop(session);
    if (cancelled) turn->decide(Turn::State::kCancelled);
    return cancelled;
  });
}

uint64_t TurnQueue::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

void TurnQueue::retire(std::unique_ptr<Sequence> sequence) {
  const std::lock_guard lock(mutex_);
  if (running_ != nullptr) retired_.push_back(std::move(sequence));
  // With the lock: a call that comes now would find nobody to wait for. No device is at work.
  sequence.reset();
}

void TurnQueue::pass_on() {
  std::vector<std::unique_ptr<Sequence>> unused;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      for (Turn::Caller& caller : running_->callers_) caller.session = nullptr;
      unused.swap(retired_);
      if (unused.empty()) {
        running_ = waiting_.empty() ? nullptr : waiting_.front();
        if (running_ == nullptr) return;
        waiting_.pop_front();
        running_->decide(Turn::State::kRunning);
        return;
      }
    }
    // Without the lock, as a device may have to be waited for; still in this call's turn.
    unused.clear();
  }
}

Turn::Turn(std::shared_ptr<OpenModel> model, const std::vector<std::shared_ptr<Session>>& sessions,
           int64_t timeout_ms)
    : model_(std::move(model)), thread_(std::this_thread::get_id()) {
  for (const std::shared_ptr<Session>& session : sessions) {
    callers_.push_back({session, session.get(), {}});
  }
  TurnQueue& queue = model_->turns;
  std::unique_lock lock(queue.mutex_);
  if (queue.running_ == nullptr) {
    queue.running_ = this;
    state_ = State::kRunning;
  } else if (timeout_ms == 0 || queue.running_->thread_ == thread_) {
    state_ = State::kBusy;
  } else {
    wait(lock, timeout_ms);
  }
}

bool Turn::stop(const Session& session) {
  bool is_concerned = false;
  for (Caller& caller : callers_) {
    if (caller.session != &session) continue;
    is_concerned = true;
    caller.stop.request_stop();
  }
  return is_concerned && std::ranges::all_of(callers_, [](const Caller& caller) {
           return caller.stop.stop_requested();
         });
}

void Turn::wait(std::unique_lock<std::mutex>& lock, int64_t timeout_ms) {
  std::deque<Turn*>& waiting = model_->turns.waiting_;
  waiting.push_back(this);
  const auto is_decided = [&] { return state_ != State::kWaiting; };
  const auto give_up = [&](State state) {
    std::erase(waiting, this);
    state_ = state;
  };
  if (timeout_ms < 0 || timeout_ms > kTimeoutMaxMs) timeout_ms = kTimeoutMaxMs;
  const auto latest = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  if (!model_->should_stop) {
    if (!changed_.wait_until(lock, latest, is_decided)) give_up(State::kBusy);
    return;
  }
  while (!changed_.wait_for(lock, kAskedEvery, is_decided)) {
    if (std::chrono::steady_clock::now() >= latest) return give_up(State::kBusy);
    lock.unlock();
    const bool should_stop = model_->should_stop();
    lock.lock();
    if (should_stop && !is_decided()) return give_up(State::kCancelled);
  }
}

// With the queue's lock, after which the turn may be gone.
void Turn::decide(State state) {
  state_ = state;
  changed_.notify_one();
}

Turn::~Turn() {
  // First: if it was the last to keep a session, its memory goes in this turn.
  for (Caller& caller : callers_) caller.kept.reset();
  if (state_ == State::kRunning) model_->turns.pass_on();
}

}  // namespace moeflux
