// Counters of several models as one.
#pragma once

#include "chat/open_model.h"
#include "schedule/scheduler.h"

namespace moeflux::serve {

/// The members that count since the start.
void add_past(SchedulerCounters& sum, const SchedulerCounters& more);
/// The members that tell of now.
void add_now(SchedulerCounters& sum, const SchedulerCounters& more);
/// Without the cache's capacity, which is of now.
void add_counters(ModelCounters& sum, const ModelCounters& more);

}  // namespace moeflux::serve
