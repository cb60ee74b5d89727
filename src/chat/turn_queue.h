// How calls of one model take turns: one computes, the others wait in the order they came, for as
// long as they want to. Knows sessions by their addresses only.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "engine/sequence.h"

namespace moeflux {

struct OpenModel;
class Session;
class Turn;

/// The calls of a model that compute or wait, and sequences that were freed under them. Any thread.
class TurnQueue {
 public:
  /// Stops the calls of the session that compute or wait.
  void cancel(const Session& session);
  uint64_t num_waiting() const;
  /// Destroys the sequence now or, while a call computes, at the end of that. The caller keeps the
  /// model alive.
  void retire(std::unique_ptr<Sequence> sequence);

 private:
  friend class Turn;
  /// Destroys what was retired, and gives the turn to the call that has waited longest.
  void pass_on();

  mutable std::mutex mutex_;   // guards what follows, and the states of turns
  Turn* running_ = nullptr;    // null: nobody waits
  std::deque<Turn*> waiting_;  // the first is the next
  std::vector<std::unique_ptr<Sequence>> retired_;
};

/// A call's turn at a model's engine, taken or given up by the constructor and passed on by the
/// destructor.
class Turn {
 public:
  enum class State : uint8_t { kWaiting, kRunning, kBusy, kCancelled };

  /// Waits in the queue: not at all for 0, without end below 0, otherwise for so many milliseconds.
  /// A call from a callback of the running call never waits, as it would wait for itself. The turn
  /// keeps the model alive, and the sessions whose call it is, of which some may be null.
  Turn(std::shared_ptr<OpenModel> model, const std::vector<std::shared_ptr<Session>>& sessions,
       int64_t timeout_ms);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// kRunning: it has the turn. kBusy: others kept it for too long. kCancelled: while it waited,
  /// all of its sessions were, or OpenModel::should_stop said so.
  State state() const { return state_; }
  /// A running call looks at its sessions' tokens: TurnQueue::cancel() requests the stop.
  std::stop_token stop_token(size_t session = 0) const {
    return callers_[session].stop.get_token();
  }

 private:
  friend class TurnQueue;
  struct Caller {
    std::shared_ptr<Session> kept;
    const Session* session;  // the same, for others to compare; guarded by the queue's mutex
    std::stop_source stop;
  };
  /// With the queue's lock. True when no session is left that was not stopped.
  bool stop(const Session& session);
  void wait(std::unique_lock<std::mutex>& lock, int64_t timeout_ms);
  void decide(State state);

  std::shared_ptr<OpenModel> model_;
  std::vector<Caller> callers_;
  std::thread::id thread_;
  std::condition_variable changed_;
  State state_ = State::kWaiting;
};

}  // namespace moeflux
