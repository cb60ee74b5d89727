// A request's choices on their way from the scheduler to the client: begins the answer, stops
// computing for a client that reads slowly or has gone, and ends when the last choice has.
#pragma once

#include <atomic>
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
#include "schedule/scheduler.h"
#include "serve/answer/answer_encoder.h"
#include "serve/kept/job_thread.h"
#include "serve/kept/keeper.h"
#include "serve/wire/interface.h"

namespace moeflux::serve {

/// A text to ask for and who hears of it.
using ChoiceJob = std::pair<TextRequest, std::shared_ptr<TextReceiver>>;

struct ChoicesOptions {
  bool stream = false;  // an answer in pieces
  /// Where the answer is told, so that the next step need not wait for it. It must outlive the
  /// choices. Null: on the scheduler's thread.
  JobThread* tells_on = nullptr;
  /// Where the answer ends: what is told then may wait for a drive there. It must outlive the
  /// choices. Null: where it is told.
  JobThread* ends_on = nullptr;
};

/// Made once for a request. Its receivers keep it alive.
class Choices : public std::enable_shared_from_this<Choices> {
 public:
  Choices(Scheduler& scheduler, AnswerTarget target, std::unique_ptr<AnswerEncoder> encoder,
          ChoicesOptions options);
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  /// Asks for all, or answers why that failed. The scheduler must still be there.
  void start(std::vector<ChoiceJob> jobs);
  /// All end, for this reason. Any thread, at any time.
  void stop(ApiError why);

  // --- The receivers' side, on the scheduler's thread ---

  void progress(size_t choice, const PromptProgress& progress);
  /// True to compute nothing more until Scheduler::resume(): the client has more unread than it
  /// should.
  bool tell(AnswerDelta delta);
  /// One choice has ended; the answer ends with the last, unless it was cancelled.
  void end_choice(size_t choice, AnswerPart answer);
  /// All end.
  void fail(ApiError error);

 private:
  using Call = void (SchedulerDoor::*)(TextRequestId);
  using Ids = std::shared_ptr<const std::vector<TextRequestId>>;

  /// On the thread that tells.
  void on_it(std::function<void()> told);
  void write(std::string bytes);
  void take_choice(size_t choice, AnswerPart answer);
  void end();
  void end_cancelled();
  void end_failed(const ApiError& error);
  /// Does so without a lock of ours: whoever calls it may hold any.
  std::function<void()> later(Call what, Ids ids) const;
  void cancel_all();

  Scheduler& scheduler_;  // until all have been asked for
  const std::shared_ptr<SchedulerDoor> door_;
  const AnswerTarget target_;
  const ChoicesOptions options_;
  /// From the start on, for the thread that tells alone; where the answer ends, that one's.
  const std::unique_ptr<AnswerEncoder> encoder_;
  const std::string begin_;
  std::vector<AnswerPart> answers_;
  std::atomic<bool> is_full_ = false;  // the client has more unread than it should
  enum class State : uint8_t { kAsking, kBegun, kEnded };
  std::mutex mutex_;  // guards what follows and what is written of the answer; held while it begins
  Ids ids_;           // of texts that were taken: all of them once the answer has begun
  size_t running_ = 0;
  State state_ = State::kAsking;
  std::optional<ApiError> stopped_;
};

void stop_when_deleted(KeptAnswer& kept, const std::shared_ptr<Choices>& answer);

/// Hears of one choice from the scheduler, and tells it.
class ChoiceReceiver : public TextReceiver {
 public:
  ChoiceReceiver(std::shared_ptr<Choices> choices, size_t choice)
      : choices_(std::move(choices)), choice_(choice) {}

  void on_progress(const PromptProgress& progress) final { choices_->progress(choice_, progress); }
  void on_failed(const Error& error) final { choices_->fail(api_error(error)); }

 protected:
  bool tell(AnswerDelta delta);
  /// The whole answer, complete but for the statistics.
  void end(AnswerPart answer, const TextStatistics& statistics);

 private:
  const std::shared_ptr<Choices> choices_;
  const size_t choice_;
};

}  // namespace moeflux::serve
