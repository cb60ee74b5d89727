#include "library/handles.h"

namespace moeflux {

void OpenModel::publish_metrics(uint64_t evaluated_tokens, uint64_t evaluate_us) {
  const MemoryPlan& plan = engine->memory_plan();
  const ExpertStats experts = engine->expert_stats();
  const uint64_t capacity_bytes = engine->expert_capacity_bytes();
  const std::lock_guard lock(metrics_mutex_);
  metrics_.dense_bytes = plan.dense_bytes;
  metrics_.experts_bytes = plan.experts_bytes;
  metrics_.expert_cache_bytes = capacity_bytes;
  metrics_.sequence_bytes = plan.state_bytes;
  metrics_.cold_bytes_per_token = plan.cold_bytes_per_token;
  metrics_.expert_hits = experts.hits;
  metrics_.expert_misses = experts.misses;
  metrics_.expert_bytes_read = experts.bytes_read;
  metrics_.expert_evictions = experts.evictions;
  metrics_.expert_stall_us = experts.stall_us;
  metrics_.evaluated_tokens += evaluated_tokens;
  metrics_.evaluate_us += evaluate_us;
}

mf_metrics OpenModel::metrics() const {
  mf_metrics metrics;
  {
    const std::lock_guard lock(metrics_mutex_);
    metrics = metrics_;
  }
  metrics.waiting_calls = turns.num_waiting();
  return metrics;
}

}  // namespace moeflux
