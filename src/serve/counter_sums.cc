#include "serve/counter_sums.h"

#include <algorithm>

namespace moeflux::serve {

void add_past(SchedulerCounters& sum, const SchedulerCounters& more) {
  sum.finished += more.finished;
  sum.cancelled += more.cancelled;
  sum.failed += more.failed;
  sum.prompt_tokens += more.prompt_tokens;
  sum.generated_tokens += more.generated_tokens;
  sum.decode_steps += more.decode_steps;
  sum.decode_bytes += more.decode_bytes;
  sum.decode_step_seconds += more.decode_step_seconds;
  for (size_t i = 0; i < sum.steps_by_texts.size(); ++i) {
    sum.steps_by_texts[i] += more.steps_by_texts[i];
  }
  sum.drafts += more.drafts;
  sum.steps += more.steps;
  sum.step_tokens += more.step_tokens;
  sum.step_texts += more.step_texts;
  sum.text_tokens_max = std::max(sum.text_tokens_max, more.text_tokens_max);
  sum.preemptions += more.preemptions;
  sum.prefill_seconds += more.prefill_seconds;
  sum.decode_seconds += more.decode_seconds;
  sum.prefix_query_tokens += more.prefix_query_tokens;
  sum.prefix_hit_tokens += more.prefix_hit_tokens;
  sum.prefix_write_failures += more.prefix_write_failures;
  sum.begun += more.begun;
  sum.queued_seconds += more.queued_seconds;
  sum.first_tokens += more.first_tokens;
  sum.first_token_seconds += more.first_token_seconds;
}

void add_now(SchedulerCounters& sum, const SchedulerCounters& more) {
  sum.waiting += more.waiting;
  sum.running += more.running;
  sum.parked += more.parked;
  sum.preempted += more.preempted;
  sum.kept_texts += more.kept_texts;
  sum.kept_tokens += more.kept_tokens;
}

void add_counters(ModelCounters& sum, const ModelCounters& more) {
  sum.experts += more.experts;
  sum.evaluated_tokens += more.evaluated_tokens;
  sum.evaluate_us += more.evaluate_us;
}

}  // namespace moeflux::serve
