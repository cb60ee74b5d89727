#include "serve/kept/route_tracer.h"

namespace moeflux::serve {

/// Told on the scheduler's thread, which holds it for a step.
class RouteTracer::Recording : public RouteObserver {
 public:
  Recording(RouteTracer& tracer, const RouteTraceHeader& header)
      : tracer_(tracer), lines_(header) {}

  std::string head() const { return lines_.head(); }
  void routed(const LayerRoutes& routes, std::span<const ExpertId> misses) override {
    const std::lock_guard lock(tracer_.mutex_);
    tracer_.end_when_over();
    if (tracer_.recording_.get() == this) lines_.add(routes, misses, tracer_.text_);
  }

 private:
  RouteTracer& tracer_;
  RouteTraceLines lines_;
};

std::weak_ptr<RouteObserver> RouteTracer::start(const std::string& model,
                                                const RouteTraceHeader& header,
                                                const TraceLimits& limits) {
  const std::lock_guard lock(mutex_);
  end_when_over();
  if (recording_) return {};
  recording_ = std::make_shared<Recording>(*this, header);
  text_ = recording_->head();
  limits_ = limits;
  begin_ = Clock::now();
  status_ = {.is_recording = true, .model = model};
  return recording_;
}

void RouteTracer::stop() {
  const std::lock_guard lock(mutex_);
  end_when_over();
  recording_ = nullptr;
  status_.is_recording = false;
}

TraceStatus RouteTracer::status() {
  const std::lock_guard lock(mutex_);
  end_when_over();
  status_.bytes = text_.size();
  return status_;
}

std::string RouteTracer::text() {
  const std::lock_guard lock(mutex_);
  end_when_over();
  return recording_ ? std::string() : text_;
}

// With the lock.
void RouteTracer::end_when_over() {
  if (!recording_) return;
  const Clock::duration time = Clock::now() - begin_;
  status_.seconds = std::chrono::duration<double>(time).count();
  if (text_.size() < limits_.bytes_max && time < limits_.time_max) return;
  recording_ = nullptr;
  status_.is_recording = false;
  status_.is_full = true;
}

}  // namespace moeflux::serve
