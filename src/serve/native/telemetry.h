// The engine's work between two moments, for those who watch it: rates from counters.
#pragma once

#include <chrono>
#include <optional>

#include "base/json.h"
#include "chat/open_model.h"
#include "schedule/scheduler.h"

namespace moeflux::serve {

/// One watcher's; not thread-safe.
class Telemetry {
 public:
  using Time = std::chrono::system_clock::time_point;

  /// {t, tok_s, prompt_tok_s, hit, read_bytes, stall_us, table_read_bytes, table_stall_us,
  /// bus_bytes, near_hits, far_hits, queue, active, preempted, steps, step_tokens, cache_bytes}:
  /// since the sample before, or since the start. `hit` is null where no expert was used.
  Json sample(Time now, const SchedulerCounters& texts, const ModelCounters& model);

 private:
  struct Last {
    Time time;
    SchedulerCounters texts;
    ExpertStats experts;
  };
  std::optional<Last> last_;
};

/// The memory plan of the engine, in bytes.
Json plan_json(const OpenModel& model);

}  // namespace moeflux::serve
