// Several sessions in common steps.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "chat/session.h"

namespace moeflux {
namespace {

/// Makes tokens and time known between the steps of a call.
class StepPublisher {
 public:
  explicit StepPublisher(OpenModel& model) : model_(model) {}

  void publish(int64_t tokens) {
    const Clock::time_point now = Clock::now();
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now - published_);
    published_ = now;
    model_.publish(static_cast<uint64_t>(tokens), static_cast<uint64_t>(us.count()));
  }

 private:
  using Clock = std::chrono::steady_clock;
  OpenModel& model_;
  Clock::time_point published_ = Clock::now();
};

/// A step while it runs.
struct RunningStep {
  int64_t evaluated = 0;
  std::vector<float> last;
};

}  // namespace

void Session::eval_batch(std::span<SessionStep> steps) {
  if (steps.empty()) return;
  StepPublisher publisher(*steps.front().session->model_);
  const auto width = static_cast<size_t>(steps.front().session->engine().spec().vocab_size);
  std::vector<RunningStep> running(steps.size());
  std::vector<StepItem> items;
  for (size_t i = 0; i < steps.size(); ++i) {
    Session& session = *steps[i].session;
    MF_CHECK(session.model_ == steps.front().session->model_);
    items.push_back({.sequence = session.sequence_.get(),
                     .tokens = steps[i].tokens,
                     .options = {.logits = steps[i].logits,
                                 .stop = steps[i].stop,
                                 .best = steps[i].best,
                                 .phase = steps[i].phase}});
    items.back().options.progress = [&, i](int64_t evaluated) {
      session.publish_position();
      publisher.publish(evaluated - std::exchange(running[i].evaluated, evaluated));
      return !steps[i].may_abort || !session.model_->is_aborted();
    };
    items.back().sink = [&, i, width](int64_t first, std::span<const float> rows) {
      steps[i].last = rows.last(width);
      if (steps[i].keeps_logits) {
        running[i].last.assign(steps[i].last.begin(), steps[i].last.end());
      }
      return steps[i].sink ? steps[i].sink(first, rows) : Status();
    };
  }
  steps.front().session->engine().eval_step(items);
  // Failed items come first: a session that came twice has the logits of the item that did not.
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].outcome = items[i].outcome;
    steps[i].best_found = std::move(items[i].best);
    if (!items[i].outcome.ok() && running[i].evaluated > 0) steps[i].session->extra_.logits.clear();
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (items[i].outcome.ok()) steps[i].session->extra_.logits = std::move(running[i].last);
  }
}

}  // namespace moeflux
