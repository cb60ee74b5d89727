// A request's choices on their way from the scheduler to the client: begins the answer, stops
// computing for a client that reads slowly or has gone, and ends when the last choice has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "chat/scheduler.h"
#include "serve/api_error.h"
#include "serve/interface.h"
#include "serve/job_thread.h"
#include "serve/keeper.h"

namespace moeflux::serve {

/// A text to ask for and who hears of it.
using ChoiceJob = std::pair<TextRequest, std::shared_ptr<TextReceiver>>;

/// Made once for a request. Its receivers call it on the scheduler's thread and keep it alive.
class Choices : public std::enable_shared_from_this<Choices> {
 public:
  /// The scheduler must outlive this. `stream`: an answer in pieces. `ends_on`, which must outlive
  /// it too, is where the answer ends; null: on the scheduler's thread.
  Choices(Scheduler& scheduler, AnswerTarget target, bool stream, JobThread* ends_on = nullptr);
  virtual ~Choices() = default;
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  /// Asks for all, or answers why that failed.
  void start(std::vector<ChoiceJob> jobs);
  /// All end, for this reason. Any thread, at any time.
  void stop(ApiError why);

 protected:
  bool streams() const { return stream_; }
  /// What a stream begins with.
  virtual std::string first_bytes() { return {}; }
  /// All choices have ended. Before the client hears of it; may wait for a drive if the answer ends
  /// on a thread of its own. What the client has to hear beside the answer: it was to be kept, and
  /// is not.
  virtual std::optional<ApiError> before_end() { return std::nullopt; }
  /// What a stream ends with.
  virtual std::string last_bytes() = 0;
  /// The same for an answer that comes whole.
  virtual Json whole_answer() = 0;
  /// What a stream that has begun ends with when it fails.
  virtual std::string error_bytes(const ApiError& error) = 0;

  /// Writes to a stream; true when the client has more unread than it should.
  bool write(std::string bytes);
  /// One choice has ended; the answer ends with the last, unless it was cancelled.
  void end_choice(FinishReason reason);
  /// All end.
  void fail(const ApiError& error);

 private:
  using Ids = std::shared_ptr<const std::vector<TextRequestId>>;

  void end();
  /// Does so, if this is still there, without a lock of ours: whoever calls it may hold any.
  std::function<void()> later(void (Scheduler::*what)(TextRequestId), Ids ids);

  Scheduler& scheduler_;
  const AnswerTarget target_;
  const bool stream_;
  JobThread* const ends_on_;
  enum class State : uint8_t { kAsking, kBegun, kEnded };
  std::mutex mutex_;  // guards what follows and what is written of the answer; held while it begins
  Ids ids_;           // of texts that were taken: all of them once the answer has begun
  size_t running_ = 0;
  State state_ = State::kAsking;
  std::optional<ApiError> stopped_;
};

/// Who deletes what the answer is to be kept in stops it.
void stop_when_deleted(KeptAnswer& kept, const std::shared_ptr<Choices>& answer);

}  // namespace moeflux::serve
