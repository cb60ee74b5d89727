#include "schedule/scheduler.h"

#include <utility>

#include "base/format.h"
#include "schedule/scheduler_loop.h"

namespace moeflux {
namespace {

Status check(const SchedulerOptions& options) {
  if (options.queue_max < 0 || options.active_max < 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} requests that run and {} that wait, expected 1 and 0 at least",
                      options.active_max, options.queue_max);
  }
  if (options.slice_time.count() < 0 || options.patience.count() < 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "slices of {} ms and a patience of {} ms, expected 0 at least",
                      options.slice_time.count(), options.patience.count());
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::start(std::shared_ptr<OpenModel> model,
                                                    SchedulerOptions options) {
  MF_RETURN_IF_ERROR(check(options));
  std::shared_ptr<Session> caller;
  {
    const Turn turn(model, {}, -1);
    MF_ASSIGN_OR_RETURN(caller, Session::create(model));
  }
  MF_ASSIGN_OR_RETURN(const StepTraffic traffic, StepTraffic::of(model->engine->loaded()));
  return std::unique_ptr<Scheduler>(
      new Scheduler(std::make_unique<Loop>(std::move(model), std::move(caller), options, traffic)));
}

void SchedulerDoor::cancel(TextRequestId id) {
  const std::lock_guard lock(mutex_);
  if (scheduler_ != nullptr) scheduler_->cancel(id);
}

void SchedulerDoor::resume(TextRequestId id) {
  const std::lock_guard lock(mutex_);
  if (scheduler_ != nullptr) scheduler_->resume(id);
}

void SchedulerDoor::close() {
  const std::lock_guard lock(mutex_);
  scheduler_ = nullptr;
}

Scheduler::Scheduler(std::unique_ptr<Loop> loop)
    : loop_(std::move(loop)), door_(new SchedulerDoor(*this)) {}
Scheduler::~Scheduler() { door_->close(); }

Result<TextRequestId> Scheduler::submit(TextRequest request,
                                        std::shared_ptr<TextReceiver> receiver) {
  return loop_->submit(std::move(request), std::move(receiver));
}

void Scheduler::cancel(TextRequestId id) { loop_->cancel(id); }
void Scheduler::resume(TextRequestId id) { loop_->resume(id); }
void Scheduler::refuse() { loop_->refuse(); }
void Scheduler::drain() { loop_->drain(std::nullopt); }
bool Scheduler::drain_within(std::chrono::milliseconds time) { return loop_->drain(time); }
void Scheduler::trace_routes(std::weak_ptr<RouteObserver> observer) {
  loop_->trace_routes(std::move(observer));
}
SchedulerCounters Scheduler::counters() const { return loop_->counters(); }
std::vector<ActiveText> Scheduler::slots() const { return loop_->slots(); }

}  // namespace moeflux
