// Many requests for text on one opened model, computed in common steps by a thread of its own. A
// text depends on its request and the model alone: never on who else waits, on the order, on who
// takes part in a step, or on what was kept of earlier texts.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "chat/open_model.h"
#include "schedule/step_book.h"
#include "schedule/text_request.h"

namespace moeflux {

struct SchedulerOptions {
  int queue_max = 64;  // requests beyond active_max that are taken; further ones are refused
  int active_max = 8;  // texts that have begun and share the engine
  Sharing sharing = Sharing::kAuto;
  /// How long one text has the engine where experts come from a drive: a token at least.
  std::chrono::milliseconds slice_time{1000};
  /// A request that has waited for this long preempts one that has run for as long.
  std::chrono::milliseconds patience{30000};
  /// Tokens of ended texts whose states stay in memory; negative: a context.
  int64_t kept_tokens_max = -1;
  /// Bytes of all states, those of texts that run by what they may become. 0:
  /// Engine::state_room_bytes(). A text alone may always fill its context.
  uint64_t state_bytes_max = 0;
};

/// Counts from the start on, but for what is at this moment.
struct SchedulerCounters {
  int64_t waiting = 0;      // now
  int64_t running = 0;      // now: texts that have begun, with
  int64_t parked = 0;       // those that wait to be resumed
  int64_t preempted = 0;    // now, beside them: texts that gave way and wait to go on
  int64_t kept_texts = 0;   // now: ended texts whose states are in memory, and
  int64_t kept_tokens = 0;  // their tokens
  uint64_t finished = 0;    // requests that ended by themselves
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t prompt_tokens = 0;     // evaluated, in prompts
  uint64_t generated_tokens = 0;  // told, without stop tokens
  uint64_t decode_steps = 0;      // tokens that evaluations took texts further by
  DraftCounts drafts;
  uint64_t steps = 0;        // of the engine, each with tokens of one or more texts
  uint64_t step_tokens = 0;  // in these
  uint64_t step_texts = 0;   // the same; a text counts once in each step
  /// Steps by their texts: at most 1, 2, 4 and so on to 256, each without those before, and more.
  std::array<uint64_t, 10> steps_by_texts = {};
  uint64_t decode_bytes = 0;         // that steps without prompts move at least; see StepTraffic
  double decode_step_seconds = 0.0;  // of these steps
  int64_t text_tokens_max = 0;       // of the longest text, with its prompt
  uint64_t preemptions = 0;
  double prefill_seconds = 0.0;      // of steps, as each text that took part in them sees them
  double decode_seconds = 0.0;       // the same
  uint64_t prefix_query_tokens = 0;  // of prompts that looked for a kept beginning
  uint64_t prefix_hit_tokens = 0;    // of these, found
  uint64_t prefix_write_failures = 0;
  uint64_t begun = 0;
  double queued_seconds = 0.0;  // of those that began
  uint64_t first_tokens = 0;
  double first_token_seconds = 0.0;  // from submit() on, of those
};

/// A text that has begun.
struct ActiveText {
  enum class State : uint8_t { kPrompt, kText, kParked, kPreempted };

  TextRequestId id = 0;
  State state = State::kPrompt;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t processed_tokens = 0;  // of the prompt
  int64_t generated_tokens = 0;
  int64_t tokens_max = 0;   // as asked
  std::string client = {};  // TextRequest::client
};

class Scheduler;

/// Reaches the requests of a scheduler that may have gone meanwhile: it then does nothing. For any
/// thread.
class SchedulerDoor {
 public:
  /// As Scheduler's.
  void cancel(TextRequestId id);
  void resume(TextRequestId id);

 private:
  friend class Scheduler;
  explicit SchedulerDoor(Scheduler& scheduler) : scheduler_(&scheduler) {}
  void close();

  std::mutex mutex_;  // held in a call
  Scheduler* scheduler_;
};

/// All functions are for any thread, but drain() and the destructor not from a receiver's calls.
class Scheduler {
 public:
  /// Waits for its turn at the model. Direct users of the model go on working beside it, a step
  /// apart. Fails with kInvalidArgument for options that cannot be, and as Session::create() does.
  static Result<std::unique_ptr<Scheduler>> start(std::shared_ptr<OpenModel> model,
                                                  SchedulerOptions options = {});
  /// Cancels what has not ended and waits until all receivers know.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// The receiver is kept until its last call; the first may come before this returns. Fails with
  /// kInvalidArgument for an empty prompt, a token outside the vocabulary, a sampler or a number
  /// that cannot be, and, naming both counts, a prompt that exceeds the context with tokens_max.
  /// Fails with kResourceExhausted when the queue is full, unless it is a further text of a
  /// request, and with kFailedPrecondition after drain().
  Result<TextRequestId> submit(TextRequest request, std::shared_ptr<TextReceiver> receiver);
  /// Ends the request as kCancelled: at once in the queue, otherwise after the step at hand. One
  /// that has ended, or was never there, is no error.
  void cancel(TextRequestId id);
  /// Goes on with a text that was parked, or is being parked by the call at hand.
  void resume(TextRequestId id);
  /// Refuses new requests from now on.
  void refuse();
  /// The same, and returns when all have ended, parked ones by resume() or cancel(), and what is to
  /// survive the process is written.
  void drain();
  /// The same; false when `time` is over before.
  bool drain_within(std::chrono::milliseconds time);

  const std::shared_ptr<SchedulerDoor>& door() const { return door_; }

  /// The observer of all texts' routes from the next step on, for as long as somebody else holds
  /// it; a null one observes nothing. It is told on the scheduler's thread.
  void trace_routes(std::weak_ptr<RouteObserver> observer);

  SchedulerCounters counters() const;
  /// In the order in which they began.
  std::vector<ActiveText> slots() const;

 private:
  class Loop;
  explicit Scheduler(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
  const std::shared_ptr<SchedulerDoor> door_;
};

}  // namespace moeflux
