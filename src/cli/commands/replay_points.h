// Hit rates of a recorded trace by cache size, for a plot: the code of `moeflux replay`.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace moeflux {

/// {model, slot_bytes, points: [{bytes, ...}]} of so many equal steps of cache size, each with the
/// members of `moeflux replay --json --staging`. Fails as RouteTrace::parse(), and with
/// kFailedPrecondition for a trace without routes.
Result<Json> replay_text(const std::string& text, int points);

}  // namespace moeflux
