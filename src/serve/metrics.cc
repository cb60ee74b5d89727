#include "serve/metrics.h"

#include <string_view>

#include "base/format.h"

namespace moeflux::serve {
namespace {

/// Lines of one metric after another.
class Page {
 public:
  template <typename T>
  void counter(std::string_view name, std::string_view help, T value) {
    add(name, "counter", help, formatted("{}", value));
  }
  template <typename T>
  void gauge(std::string_view name, std::string_view help, T value) {
    add(name, "gauge", help, formatted("{}", value));
  }
  /// A histogram that knows its sum and count alone.
  void sum_and_count(std::string_view name, std::string_view help, double sum, uint64_t count) {
    text += formatted(
        "# HELP {0} {1}\n# TYPE {0} histogram\n{0}_bucket{{le=\"+Inf\"}} {3}\n"
        "{0}_sum {2}\n{0}_count {3}\n",
        name, help, sum, count);
  }

  /// Steps by their completions.
  void step_sizes(const SchedulerCounters& texts) {
    constexpr std::string_view kName = "moeflux_step_texts";
    text += formatted("# HELP {0} Completions of a step\n# TYPE {0} histogram\n", kName);
    uint64_t steps = 0;
    for (size_t i = 0; i + 1 < texts.steps_by_texts.size(); ++i) {
      steps += texts.steps_by_texts[i];
      text += formatted("{}_bucket{{le=\"{}\"}} {}\n", kName, 1u << i, steps);
    }
    text += formatted("{0}_bucket{{le=\"+Inf\"}} {2}\n{0}_sum {1}\n{0}_count {2}\n", kName,
                      texts.step_texts, texts.steps);
  }

  /// Lists the paths that were asked for at all.
  void requests(const std::vector<AskedCount>& asked) {
    constexpr std::string_view kName = "moeflux_http_requests_total";
    text += formatted("# HELP {0} Requests by method and path\n# TYPE {0} counter\n", kName);
    for (const AskedCount& one : asked) {
      if (one.count == 0) continue;
      text +=
          formatted("{}{{method=\"{}\",path=\"{}\"}} {}\n", kName, one.method, one.path, one.count);
    }
  }

  std::string text;

 private:
  void add(std::string_view name, std::string_view type, std::string_view help,
           const std::string& value) {
    text += formatted("# HELP {0} {2}\n# TYPE {0} {1}\n{0} {3}\n", name, type, help, value);
  }
};

double rate(uint64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

// Both engines have these names.
void add_drafts(Page& page, std::string_view engine, const DraftCounts& drafts) {
  const auto name = [engine](std::string_view rest) {
    return formatted("{}:spec_decode_num_{}_total", engine, rest);
  };
  page.counter(name("drafts"), "Drafts", drafts.drafts);
  page.counter(name("draft_tokens"), "Tokens of drafts", drafts.drafted);
  page.counter(name("accepted_tokens"), "Tokens of drafts that were accepted", drafts.accepted);
}

void add_llamacpp(Page& page, const SchedulerCounters& texts) {
  page.counter("llamacpp:prompt_tokens_total", "Prompt tokens evaluated", texts.prompt_tokens);
  page.counter("llamacpp:prompt_tokens_cached_total", "Prompt tokens that were there",
               texts.prefix_hit_tokens);
  page.counter("llamacpp:prompt_seconds_total", "Seconds of prompts", texts.prefill_seconds);
  page.counter("llamacpp:tokens_predicted_total", "Tokens generated", texts.generated_tokens);
  page.counter("llamacpp:tokens_predicted_seconds_total", "Seconds of generation",
               texts.decode_seconds);
  page.counter("llamacpp:n_decode_total", "Evaluations of single tokens", texts.decode_steps);
  page.gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens of a second, on average",
             rate(texts.prompt_tokens, texts.prefill_seconds));
  page.gauge("llamacpp:predicted_tokens_seconds", "Tokens generated in a second, on average",
             rate(texts.decode_steps, texts.decode_seconds));
  page.counter("llamacpp:n_tokens_max", "Tokens of the longest completion", texts.text_tokens_max);
  page.gauge("llamacpp:n_busy_slots_per_decode", "Completions of an evaluation, on average",
             texts.steps == 0
                 ? 0.0
                 : static_cast<double>(texts.step_texts) / static_cast<double>(texts.steps));
  add_drafts(page, "llamacpp", texts.drafts);
  page.gauge("llamacpp:requests_processing", "Completions that have begun", texts.running);
  page.gauge("llamacpp:requests_deferred", "Requests that wait", texts.waiting);
}

void add_vllm(Page& page, const SchedulerCounters& texts) {
  page.gauge("vllm:num_requests_running", "Completions that have begun", texts.running);
  page.gauge("vllm:num_requests_waiting", "Requests that wait", texts.waiting);
  page.counter("vllm:num_preemptions_total", "Completions that were preempted", texts.preemptions);
  page.counter("vllm:prefix_cache_queries_total", "Tokens of prompts looked for",
               texts.prefix_query_tokens);
  page.counter("vllm:prefix_cache_hits_total", "Tokens of prompts found", texts.prefix_hit_tokens);
  page.sum_and_count("vllm:time_to_first_token_seconds", "From a request to its first token",
                     texts.first_token_seconds, texts.first_tokens);
  page.sum_and_count("vllm:inter_token_latency_seconds", "Seconds of a token", texts.decode_seconds,
                     texts.decode_steps);
  add_drafts(page, "vllm", texts.drafts);
}

void add_ours(Page& page, const SchedulerCounters& texts, const ModelCounters& model) {
  page.counter("moeflux_requests_finished_total", "Requests that ended by themselves",
               texts.finished);
  page.counter("moeflux_requests_cancelled_total", "Requests that were cancelled", texts.cancelled);
  page.counter("moeflux_requests_failed_total", "Requests that failed", texts.failed);
  page.gauge("moeflux_texts_parked", "Completions that wait for their client", texts.parked);
  page.gauge("moeflux_texts_preempted", "Completions that were preempted and wait to be resumed",
             texts.preempted);
  page.counter("moeflux_steps_total", "Steps of the engine", texts.steps);
  page.counter("moeflux_step_tokens_total", "Tokens in these", texts.step_tokens);
  page.step_sizes(texts);
  page.counter("moeflux_decode_bytes_total",
               "Bytes that steps without prompts move at least: over the memory's bandwidth, the "
               "least seconds that they take",
               texts.decode_bytes);
  page.counter("moeflux_decode_step_seconds_total", "Seconds of these steps",
               texts.decode_step_seconds);
  page.counter("moeflux_draft_seconds_total", "Seconds of steps with drafts", texts.drafts.seconds);
  page.counter("moeflux_draft_source_seconds_total",
               "Seconds of these in which a model that drafts proposed tokens",
               texts.drafts.drafting_seconds);
  page.counter("moeflux_draft_plain_seconds_total",
               "Seconds that the tokens of these steps take one by one",
               texts.drafts.plain_seconds);
  page.gauge("moeflux_draft_gain", "How many times as fast drafts make their steps",
             texts.drafts.gain());
  page.gauge("moeflux_kept_texts", "Ended completions whose states are cached", texts.kept_texts);
  page.gauge("moeflux_kept_tokens", "Tokens of these", texts.kept_tokens);
  page.counter("moeflux_state_write_failures_total", "States that could not be written",
               texts.prefix_write_failures);
  page.counter("moeflux_expert_hits_total", "Experts found in memory", model.experts.hits);
  page.counter("moeflux_expert_misses_total", "Experts read", model.experts.misses);
  page.counter("moeflux_expert_evictions_total", "Experts evicted", model.experts.evictions);
  page.counter("moeflux_bytes_read_total", "Bytes of experts read", model.experts.bytes_read);
  page.counter("moeflux_stall_seconds_total", "Seconds that computing waited for reads",
               static_cast<double>(model.experts.stall_us) / 1e6);
  page.counter("moeflux_table_bytes_read_total", "Bytes of rows of tables read",
               model.experts.table_bytes_read);
  page.counter("moeflux_table_stall_seconds_total", "Seconds that computing waited for such rows",
               static_cast<double>(model.experts.table_stall_us) / 1e6);
}

std::string_view state_name(ActiveText::State state) {
  switch (state) {
    case ActiveText::State::kPrompt:
      return "prompt";
    case ActiveText::State::kText:
      return "text";
    case ActiveText::State::kParked:
      return "parked";
    case ActiveText::State::kPreempted:
      break;
  }
  return "preempted";
}

}  // namespace

std::string metrics_text(const SchedulerCounters& texts, const ModelCounters& model,
                         const std::vector<AskedCount>& asked) {
  Page page;
  add_llamacpp(page, texts);
  add_vllm(page, texts);
  add_ours(page, texts, model);
  page.requests(asked);
  return page.text;
}

Json slots_json(const std::vector<ActiveText>& texts, const Slots& all) {
  Json slots = Json::array();
  for (const ActiveText& text : texts) {
    Json slot = {{"id", slots.size()},
                 {"id_task", text.id},
                 {"n_ctx", all.context_length},
                 {"is_processing", text.state == ActiveText::State::kPrompt ||
                                       text.state == ActiveText::State::kText},
                 {"state", state_name(text.state)}};
    if (text.client == all.client) {
      slot["n_prompt_tokens"] = text.prompt_tokens;
      slot["n_prompt_tokens_cached"] = text.cached_tokens;
      slot["n_prompt_tokens_processed"] = text.processed_tokens;
      slot["n_decoded"] = text.generated_tokens;
    }
    slots.push_back(std::move(slot));
  }
  while (slots.size() < static_cast<size_t>(all.count)) {
    slots.push_back({{"id", slots.size()},
                     {"n_ctx", all.context_length},
                     {"is_processing", false},
                     {"state", "idle"}});
  }
  return slots;
}

}  // namespace moeflux::serve
