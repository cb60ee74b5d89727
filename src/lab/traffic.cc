#include "lab/traffic.h"

#include <algorithm>
#include <map>
#include <vector>

#include "experts/routes/forced_routes.h"
#include "plan/dry_run.h"
#include "plan/model_sizes.h"

namespace moeflux {
namespace {

// A step's rows, and how many tokens longer each of its sequences is then.
struct TestStep {
  int64_t rows = 0;
  int64_t grows = 0;
  StepPhase phase = StepPhase::kPrompt;
};

// The timed steps that a test is evaluated in.
std::vector<TestStep> steps_of(const BenchmarkTest& test, int64_t batch) {
  std::vector<TestStep> steps;
  for (int64_t left = test.n_prompt; left > 0; left -= steps.back().rows) {
    const int64_t rows = std::min(left, batch);
    steps.push_back({rows, rows});
  }
  steps.insert(steps.end(), static_cast<size_t>(test.n_gen),
               {test.sequences(), test.tokens_a_round(), StepPhase::kDecode});
  return steps;
}

// The mean of a test's steps like this one.
Result<double> uncounted_expert_bytes(const LoadedModel& model, const TestStep& step, int64_t steps,
                                      const RouteTrace* routes) {
  if (routes == nullptr) return expected_expert_bytes(model, step.rows);
  std::vector<int64_t> top_k;
  for (const LayerSpec& layer : model.spec().layers) top_k.push_back(layer.moe.experts_per_token);
  top_k.resize(model.experts.layers.size());
  std::vector<StepRows> rows = {{.rows = step.rows, .phase = step.phase}};
  if (step.phase == StepPhase::kDecode) {
    rows.assign(static_cast<size_t>(step.rows), {.rows = 1, .phase = step.phase});
  }
  return forced_expert_bytes(*routes, model.experts, top_k, rows, steps);
}

}  // namespace

Result<Traffic> traffic_per_token(const LoadedModel& model, const BenchmarkTest& test,
                                  int64_t batch, const BenchmarkRun& run,
                                  const RouteTrace* routes) {
  Traffic traffic;
  const uint64_t lookups = run.experts.hits + run.experts.misses;
  std::map<int64_t, uint64_t> dense_bytes;  // by size of the step,
  std::map<int64_t, double> expert_bytes;   // where nobody counted
  const std::vector<LayerStateSpec> states = model.states();
  int64_t length = test.n_depth;
  for (const TestStep& step : steps_of(test, batch)) {
    if (!dense_bytes.contains(step.rows)) {
      MF_ASSIGN_OR_RETURN(const DryRun dry, dry_run(*model.model, step.rows, 1));
      dense_bytes[step.rows] = dry.weight_bytes;
      if (lookups == 0) {
        const int64_t steps = step.phase == StepPhase::kDecode ? test.n_gen : 1;
        MF_ASSIGN_OR_RETURN(expert_bytes[step.rows],
                            uncounted_expert_bytes(model, step, steps, routes));
      }
    }
    traffic.dense_bytes += static_cast<double>(dense_bytes[step.rows]);
    if (lookups == 0) traffic.expert_bytes += expert_bytes[step.rows];
    length += step.grows;
    traffic.state_bytes +=
        static_cast<double>(test.sequences()) * state_bytes_moved(states, length);
  }
  if (lookups > 0) {
    const auto repetitions = static_cast<double>(std::max<size_t>(1, run.samples_ns.size()));
    traffic.expert_bytes =
        static_cast<double>(lookups) * mean_expert_bytes(model.experts) / repetitions;
  }
  const auto tokens = static_cast<double>(std::max<int64_t>(1, test.tokens()));
  return Traffic{traffic.dense_bytes / tokens, traffic.expert_bytes / tokens,
                 traffic.state_bytes / tokens};
}

}  // namespace moeflux
