// How many bytes of memory a test must read, whatever the implementation: dense weights once a
// step, each expert that a step uses once, and what the sequence remembers.
#pragma once

#include <cstdint>

#include "lab/benchmark.h"
#include "load/model_loader.h"

namespace moeflux {

struct Traffic {
  double dense_bytes = 0.0;
  double expert_bytes = 0.0;
  double state_bytes = 0.0;

  double total() const { return dense_bytes + expert_bytes + state_bytes; }
};

/// Per token, on average over the tokens of a run. Prompts are evaluated in chunks of `batch`;
/// experts are counted as the run used them, or expected where none were counted: a device that
/// holds them all does not tell what it routes to. `model` may be loaded without its weights.
Result<Traffic> traffic_per_token(const LoadedModel& model, const BenchmarkTest& test,
                                  int64_t batch, const BenchmarkRun& run);

}  // namespace moeflux
