#include "serve/native/telemetry.h"

#include <cstdint>

namespace moeflux::serve {

Json Telemetry::sample(Time now, const SchedulerCounters& texts, const ModelCounters& model) {
  const Last before = last_.value_or(Last{.time = now, .texts = {}, .experts = {}});
  const double seconds = std::chrono::duration<double>(now - before.time).count();
  const auto rate = [&](uint64_t count, uint64_t earlier) {
    return seconds > 0 ? static_cast<double>(count - earlier) / seconds : 0.0;
  };
  const uint64_t hits = model.experts.hits - before.experts.hits;
  const uint64_t uses = hits + model.experts.misses - before.experts.misses;
  const uint64_t steps = texts.steps - before.texts.steps;
  const uint64_t step_tokens = texts.step_tokens - before.texts.step_tokens;
  const double hit = uses == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(uses);
  last_ = {.time = now, .texts = texts, .experts = model.experts};
  return {
      {"t", std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count()},
      {"tok_s", rate(texts.generated_tokens, before.texts.generated_tokens)},
      {"prompt_tok_s", rate(texts.prompt_tokens, before.texts.prompt_tokens)},
      {"hit", uses == 0 ? Json() : Json(hit)},
      {"read_bytes", model.experts.bytes_read - before.experts.bytes_read},
      {"stall_us", model.experts.stall_us - before.experts.stall_us},
      {"table_read_bytes", model.experts.table_bytes_read - before.experts.table_bytes_read},
      {"table_stall_us", model.experts.table_stall_us - before.experts.table_stall_us},
      {"bus_bytes", model.experts.bus_bytes - before.experts.bus_bytes},
      {"near_hits", model.experts.near_hits - before.experts.near_hits},
      {"far_hits", model.experts.far_hits - before.experts.far_hits},
      {"queue", texts.waiting},
      {"active", texts.running},
      {"preempted", texts.preempted},
      {"steps", steps},
      {"step_tokens", step_tokens},
      {"cache_bytes", model.expert_capacity_bytes}};
}

Json plan_json(const OpenModel& model) {
  const MemoryPlan& plan = model.engine->memory_plan();
  return {{"device", model.device_description},
          {"expert_io", model.expert_io},
          {"context_length", model.engine->memory_plan().context_length},
          {"streams", plan.streams()},
          {"available_bytes", plan.available_bytes},
          {"dense_bytes", plan.dense_bytes},
          {"state_bytes", plan.state_bytes},
          {"sequences_bytes", plan.sequences_bytes},
          {"scratch_bytes", plan.scratch_bytes},
          {"listed_key_bytes", plan.listed_bytes},
          {"reader_bytes", plan.reader_bytes},
          {"table_rows_bytes", plan.table_rows_bytes},
          {"reserve_bytes", plan.reserve_bytes},
          {"experts_bytes", plan.experts_bytes},
          {"expert_slot_bytes", plan.expert_slot_bytes},
          {"expert_cache_bytes", plan.expert_cache_bytes},
          {"cold_bytes_per_token", plan.cold_bytes_per_token},
          {"on_device",
           {{"dense_bytes", plan.on_device.dense_bytes},
            {"state_bytes", plan.on_device.state_bytes},
            {"scratch_bytes", plan.on_device.scratch_bytes}}}};
}

}  // namespace moeflux::serve
