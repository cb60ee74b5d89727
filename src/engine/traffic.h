// How many bytes of memory a test must read, whatever the implementation: dense weights once a
// step, each expert that a step uses once, and what the sequence remembers.
#pragma once

#include <cstdint>

#include "engine/benchmark.h"
#include "engine/model_loader.h"

namespace moeflux {

struct Traffic {
  double dense_bytes = 0.0;
  double expert_bytes = 0.0;
  double state_bytes = 0.0;

  double total() const { return dense_bytes + expert_bytes + state_bytes; }
};

/// Bytes of the distinct experts that a step of so many tokens uses when every expert is equally
/// likely: exact for one token, more than natural text needs for several.
double expected_expert_bytes(const LoadedModel& model, int64_t tokens);

/// Bytes of a sequence's state that the step of its token `length` - 1 reads.
double state_bytes_seen(const LoadedModel& model, int64_t length);

/// Per token, on average over the tokens of a run. Prompts are evaluated in chunks of `batch`;
/// experts are counted as the run used them, or expected where none were counted: a device that
/// holds them all does not tell what it routes to. `model` may be loaded without its weights.
Result<Traffic> traffic_per_token(const LoadedModel& model, const BenchmarkTest& test,
                                  int64_t batch, const BenchmarkRun& run);

}  // namespace moeflux
