#include "lab/traffic.h"

#include <algorithm>
#include <map>
#include <vector>

#include "plan/dry_run.h"
#include "plan/model_sizes.h"

namespace moeflux {
namespace {

// A step's rows, and how many tokens longer each of its sequences is then.
struct TestStep {
  int64_t rows = 0;
  int64_t grows = 0;
};

// The timed steps that a test is evaluated in.
std::vector<TestStep> steps_of(const BenchmarkTest& test, int64_t batch) {
  std::vector<TestStep> steps;
  for (int64_t left = test.n_prompt; left > 0; left -= steps.back().rows) {
    const int64_t rows = std::min(left, batch);
    steps.push_back({rows, rows});
  }
  steps.insert(steps.end(), static_cast<size_t>(test.n_gen),
               {test.sequences(), test.tokens_a_round()});
  return steps;
}

// One expert's bytes on average over layers: the tests' counters do not tell layers apart.
double mean_expert_bytes(const ExpertTable& table) {
  double bytes = 0.0;
  int layers = 0;
  for (const ExpertLayer& layer : table.layers) {
    if (layer.num_experts == 0) continue;
    bytes += static_cast<double>(layer.bytes_per_expert());
    ++layers;
  }
  return layers == 0 ? 0.0 : bytes / layers;
}

}  // namespace

Result<Traffic> traffic_per_token(const LoadedModel& model, const BenchmarkTest& test,
                                  int64_t batch, const BenchmarkRun& run) {
  Traffic traffic;
  const uint64_t lookups = run.experts.hits + run.experts.misses;
  std::map<int64_t, uint64_t> dense_bytes;  // by size of the step
  int64_t length = test.n_depth;
  for (const TestStep& step : steps_of(test, batch)) {
    if (!dense_bytes.contains(step.rows)) {
      MF_ASSIGN_OR_RETURN(const DryRun dry, dry_run(*model.model, step.rows, 1));
      dense_bytes[step.rows] = dry.weight_bytes;
    }
    traffic.dense_bytes += static_cast<double>(dense_bytes[step.rows]);
    if (lookups == 0) traffic.expert_bytes += expected_expert_bytes(model, step.rows);
    length += step.grows;
    traffic.state_bytes += static_cast<double>(test.sequences()) * state_bytes_seen(model, length);
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
