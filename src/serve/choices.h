// A request's choices on their way from the scheduler to the client: begins the answer, stops
// computing for a client that reads slowly or has gone, and ends when the last choice has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "chat/scheduler.h"
#include "serve/api_error.h"
#include "serve/exchange.h"

namespace moeflux::serve {

/// A text to ask for and who hears of it.
using ChoiceJob = std::pair<TextRequest, std::shared_ptr<TextReceiver>>;

/// Made once for a request. Its receivers call it on the scheduler's thread and keep it alive.
class Choices : public std::enable_shared_from_this<Choices> {
 public:
  /// The scheduler must outlive this. `stream`: an answer of server-sent events.
  Choices(Scheduler& scheduler, std::shared_ptr<Response> response, bool stream);
  virtual ~Choices() = default;
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  /// Asks for all, or answers why that failed.
  void start(std::vector<ChoiceJob> jobs);

 protected:
  bool streams() const { return stream_; }
  /// The frames before all others.
  virtual std::vector<Json> first_frames() const { return {}; }
  /// All choices have ended: the frames behind all others.
  virtual std::vector<Json> last_frames() const = 0;
  /// The same for an answer that comes whole.
  virtual Json whole_answer() const = 0;

  /// Writes a frame; true when the client has more unread than it should.
  bool write_frame(const Json& frame);
  /// One choice has ended; the answer ends with the last.
  void end_choice(FinishReason reason);
  /// All end.
  void fail(const ApiError& error);

 private:
  void cancel_all();
  void resume_all();
  std::vector<TextRequestId> ids();

  Scheduler& scheduler_;
  const std::shared_ptr<Response> response_;
  const bool stream_;
  enum class State : uint8_t { kAsking, kBegun, kEnded };
  std::mutex mutex_;  // guards what follows and calls of the response; held while the answer begins
  std::vector<TextRequestId> ids_;
  size_t running_ = 0;
  State state_ = State::kAsking;
};

}  // namespace moeflux::serve
