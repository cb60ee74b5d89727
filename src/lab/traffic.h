// How many bytes of memory a test must move, whatever the implementation: dense weights once a
// step, each expert that a step uses once, and what each sequence remembers.
#pragma once

#include <cstdint>

#include "experts/routes/route_trace.h"
#include "lab/benchmark.h"
#include "load/model_loader.h"

namespace moeflux {

struct Traffic {
  double dense_bytes = 0.0;
  double expert_bytes = 0.0;
  double state_bytes = 0.0;  // keys and values read; states of a fixed size read and written

  double total() const { return dense_bytes + expert_bytes + state_bytes; }
};

/// Per token, on average over the tokens of a run. Prompts are evaluated in chunks of `batch`;
/// experts are counted as the run used them. A device that holds them all does not tell what it
/// routes to: then they are those of `routes`, which were forced, or without (null) those of
/// equally likely experts. `model` may be loaded without its weights. Fails as
/// forced_expert_bytes().
Result<Traffic> traffic_per_token(const LoadedModel& model, const BenchmarkTest& test,
                                  int64_t batch, const BenchmarkRun& run,
                                  const RouteTrace* routes = nullptr);

}  // namespace moeflux
