// The work of the scheduler's thread, and the functions through which other threads reach it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "chat/session.h"
#include "engine/step_traffic.h"
#include "schedule/kept_states.h"
#include "schedule/route_tap.h"
#include "schedule/running_text.h"
#include "schedule/scheduler.h"
#include "schedule/scheduler_masks.h"
#include "schedule/step_book.h"
#include "schedule/step_policy.h"

namespace moeflux {

/// As Scheduler, whose comments hold.
class Scheduler::Loop {
 public:
  /// `caller` is an empty session, in whose name the loop takes its turns.
  Loop(std::shared_ptr<OpenModel> model, std::shared_ptr<Session> caller,
       const SchedulerOptions& options, const StepTraffic& traffic);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Result<TextRequestId> submit(TextRequest request, std::shared_ptr<TextReceiver> receiver);
  void cancel(TextRequestId id);
  void resume(TextRequestId id);
  void refuse();
  /// False when the time is over before.
  bool drain(std::optional<std::chrono::milliseconds> time);
  void trace_routes(std::weak_ptr<RouteObserver> observer);
  SchedulerCounters counters() const;
  std::vector<ActiveText> slots() const;

 private:
  using TextPtr = std::shared_ptr<RunningText>;

  /// A text in the step at hand.
  struct Part {
    TextPtr text;
    int64_t tokens = 0;  // 0: it could not begin
    bool is_prompt = false;
    bool has_lost_state = false;  // in a step that failed for all
    Status done = {};
  };

  /// The request that evaluates the beginning of one that waits for it.
  struct Beginning {
    TextRequestId of = 0;
    int64_t tokens = 0;
  };

  // All but check() are for the loop's thread, without the mutex.

  static StepBookOptions book_options(const OpenModel& model, const SchedulerOptions& options);
  Status check(const TextRequest& request) const;
  void run();
  bool wait();
  void end_cancelled();
  void settle_masks();
  void wait_for_quick_masks();
  TextPtr find(TextRequestId id) const;
  AdmissionView admission_view() const;
  void admit();
  void admit(const TextPtr& text);
  bool preempt(const std::vector<TextRequestId>& ids);
  void note_beginning(const RunningText& text);
  std::optional<TextRequestId> evaluates_beginning(const RunningText& text);
  void tell_news();
  StepView step_view();
  bool step();
  void run_step(const StepPlan& plan, std::vector<Part>& parts);
  std::shared_ptr<RouteObserver> route_trace() const;
  std::vector<StepPart> with_drafts(const StepPlan& plan) const;
  static void find_drafts(const std::vector<StepPart>& planned, const std::vector<Part>& parts);
  std::vector<SessionStep> begin_parts(const StepPlan& plan, std::vector<Part>& parts);
  void take_parts(std::vector<SessionStep>& steps, double seconds, std::vector<Part>& parts);
  void count_step(const StepPlan& plan, const std::vector<Part>& parts, const StepMeasure& measure);
  void count_decode(std::span<const SessionStep> steps, uint64_t experts, double seconds);
  void end_parts(const std::vector<Part>& parts);
  void make_room(const RunningText& text);
  Status begin(RunningText& text);
  Result<TextState> find_state(const RunningText& text, int64_t& branch);
  std::span<const TokenId> reusable(const RunningText& text) const;
  bool is_ready(const RunningText& text) const;
  bool waits_for_memory() const;
  void free_parked();
  void fail(const TextPtr& text, const Error& error);
  void finish(const TextPtr& text);
  void leave(RunningText& text, uint64_t SchedulerCounters::*ended);
  bool is_to_write() const;
  void write_kept();
  void publish(const RunningText& text);
  void publish_state(const RunningText& text);
  void publish_kept();
  uint64_t state_bytes(const RunningText& text) const;
  uint64_t active_bytes() const;

  const std::shared_ptr<OpenModel> model_;
  Engine& engine_;
  const std::shared_ptr<Session> caller_;
  const SchedulerOptions options_;
  const StepTraffic traffic_;

  // The loop's thread alone has these.
  StepLimits limits_;
  StepBook book_;
  KeptStates kept_;
  mutable std::map<std::pair<int64_t, int64_t>, uint64_t>
      state_bytes_;                              // by planned length, length
  std::map<TextRequestId, TextWork> published_;  // of active texts: what counters_ have
  std::map<TextRequestId, Beginning> beginnings_;
  std::set<TextRequestId> out_of_memory_;  // active texts for which memory ran out once
  std::chrono::microseconds last_step_{0};

  mutable std::mutex mutex_;  // guards what follows; active_ is written by the loop's thread alone,
                              // which reads it without
  std::condition_variable has_news_;
  std::condition_variable became_idle_;
  std::vector<TextPtr> active_;  // in the order in which they began
  std::deque<TextPtr> queue_;
  std::vector<TextPtr> dismissed_;  // cancelled in the queue; their receivers are still to be told
  bool queue_changed_ = false;      // since its texts were told their positions
  bool is_in_step_ = false;
  std::map<TextRequestId, ActiveText> slots_;
  SchedulerCounters counters_;
  std::weak_ptr<RouteObserver> route_trace_;
  TextRequestId last_id_ = 0;
  bool news_ = false;  // something has changed since the thread began to wait
  bool is_idle_ = true;
  bool is_draining_ = false;
  bool is_stopping_ = false;

  SchedulerMasks masks_;  // its threads bring news
  std::thread thread_;    // last: uses all of the above
};

}  // namespace moeflux
