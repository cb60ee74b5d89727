#include "cli/plan/host_report.h"

#include <algorithm>
#include <string_view>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "engine/cache_types.h"
#include "plan/dense_fit.h"
#include "plan/model_sizes.h"

namespace moeflux {
namespace {

std::string_view limit_name(CostLimit limit) {
  switch (limit) {
    case CostLimit::kDrive:
      return "drive";
    case CostLimit::kMemory:
      return "memory";
    case CostLimit::kCompute:
      return "arithmetic";
  }
  __builtin_unreachable();
}

Json to_json(const StepCost& cost) {
  return {{"drive_seconds", cost.drive_seconds},        {"memory_seconds", cost.memory_seconds},
          {"arithmetic_seconds", cost.compute_seconds}, {"in_layer_seconds", cost.in_layer_seconds},
          {"bound_seconds", cost.bound_seconds},        {"limit", limit_name(cost.limit)}};
}

Json to_json(const DecodeForecast& decode) {
  Json json = to_json(decode.cost);
  json["hit_rate"] = decode.hit_rate;
  json["read_bytes_per_token"] = decode.read_bytes;
  json["tokens_per_second"] = decode.tokens_per_second();
  return json;
}

Json to_json(const PromptForecast& prompt) {
  Json json = to_json(prompt.cost);
  json["tokens"] = prompt.tokens;
  json["read_bytes"] = prompt.read_bytes;
  json["tokens_per_second"] = prompt.tokens_per_second();
  return json;
}

std::string decode_line(std::string_view what, const DecodeForecast& decode) {
  return formatted("  {:<24}{:>8.0f} %{:>12}{:>11.1f}   {}\n", what, 100.0 * decode.hit_rate,
                   format_bytes(static_cast<uint64_t>(decode.read_bytes)),
                   decode.tokens_per_second(), limit_name(decode.cost.limit));
}

std::string prompt_line(std::string_view what, const PromptForecast& prompt) {
  return formatted("  {:<24}{:>10}{:>12}{:>11.1f}   {}\n", what, "",
                   format_bytes(static_cast<uint64_t>(prompt.read_bytes)),
                   prompt.tokens_per_second(), limit_name(prompt.cost.limit));
}

std::string render_memory(const HostReport& r) {
  const MemoryPlan& plan = r.plan;
  std::string text = formatted("memory: {} may be used\n", format_bytes(plan.available_bytes));
  text += memory_line("dense weights", plan.dense_bytes);
  if (plan.streamed_bytes > 0) {
    text += memory_line("layers on the drive", plan.streamed_bytes, "that every step reads");
  }
  text += memory_line("state", plan.state_bytes,
                      formatted("of a text of {} tokens, keys {} and values {}", r.context,
                                cache_type_name(r.loaded->cache_types.keys),
                                cache_type_name(r.loaded->cache_types.values)));
  text += context_line(plan, r.context);
  text += memory_line(
      "scratch", plan.scratch_bytes + plan.reader_bytes,
      formatted("of {} tokens of a prompt at once, with reads on their way", r.step_tokens));
  if (plan.table_rows_bytes > 0) {
    text += memory_line("rows of tables", plan.table_rows_bytes, "that a step reads");
  }
  text += memory_line("reserve", plan.reserve_bytes, "what nobody counts");
  const bool is_dense = plan.experts_bytes == 0;
  const std::string share =
      formatted("{:.1f} % of the experts' {}", 100.0 * r.forecast.cached_share,
                format_bytes(plan.experts_bytes));
  if (!is_dense) text += memory_line("expert cache", plan.expert_cache_bytes, share);
  for (const auto& [format, bytes] : expert_bytes_by_format(r.loaded->experts)) {
    text += memory_line("an expert", bytes, format);
  }
  if (const uint64_t bytes = r.loaded->dense.table_bytes; bytes > 0) {
    text += memory_line("tables", bytes, "on the drive: tokens read a few rows");
  }
  if (plan.fits()) return text;
  if (is_dense) {
    const uint64_t beside = plan.taken_bytes() - plan.dense_bytes;
    text += formatted(
        "  it does not fit: there are no experts that could stay on the drive; {}\n",
        largest_type_within(r.loaded->dense.parameters,
                            plan.available_bytes - std::min(beside, plan.available_bytes)));
    if (!r.stream) return text;
    return text +
           formatted("  with --stream-dense, {}\n", describe_stream(*r.stream, r.speeds.layers()));
  }
  return text +
         "  it does not fit: everything but experts has to be in memory; a shorter context "
         "(-c) or fewer bits take less\n";
}

}  // namespace

std::string host_json(const HostReport& r) {
  const Forecast& f = r.forecast;
  Json json{
      {"model", r.model},
      {"weights", r.loaded->assumed_weights.empty() ? "as stored" : r.loaded->assumed_weights},
      {"context", r.plan.context_length}};
  json["memory"] = {{"available_bytes", r.plan.available_bytes},
                    {"dense_bytes", r.plan.dense_bytes},
                    {"streamed_bytes", r.plan.streamed_bytes},
                    {"state_bytes", r.plan.state_bytes},
                    {"state_tokens", r.context},
                    {"context_bytes", r.plan.context_bytes},
                    {"cache_type_k", cache_type_name(r.loaded->cache_types.keys)},
                    {"cache_type_v", cache_type_name(r.loaded->cache_types.values)},
                    {"prompt_tokens_at_once", r.step_tokens},
                    {"scratch_bytes", r.plan.scratch_bytes},
                    {"reader_bytes", r.plan.reader_bytes},
                    {"reserve_bytes", r.plan.reserve_bytes},
                    {"expert_cache_bytes", r.plan.expert_cache_bytes},
                    {"experts_bytes", r.plan.experts_bytes},
                    {"slot_bytes", r.plan.expert_slot_bytes},
                    {"bytes_per_expert_by_format", expert_bytes_by_format(r.loaded->experts)},
                    {"cached_share", f.cached_share},
                    {"fits", r.plan.fits()}};
  if (const uint64_t bytes = r.loaded->dense.table_bytes; bytes > 0) {
    json["memory"]["table_bytes_on_drive"] = bytes;
    json["memory"]["table_rows_bytes"] = r.plan.table_rows_bytes;
  }
  const auto speed = [](const Speed& s) {
    return Json{{"per_second", s.per_second}, {"origin", s.origin}};
  };
  json["speeds"] = {{"drive_bytes", speed(r.speeds.drive)},
                    {"memory_bytes", speed(r.speeds.memory)},
                    {"multiply_adds", speed(r.speeds.arithmetic)}};
  json["decode"] = {{"uniform", to_json(f.uniform)},
                    {"natural_low", to_json(f.natural_low)},
                    {"natural_high", to_json(f.natural_high)}};
  json["prompt"] = {{"cold", to_json(f.cold_prompt)}, {"warm", to_json(f.warm_prompt)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string host_text(const HostReport& r) {
  const Forecast& f = r.forecast;
  const std::string& weights = r.loaded->assumed_weights;
  std::string text = r.model + (weights.empty() ? "" : ", weights " + weights) + "\n";
  text += render_memory(r);
  text += formatted("speeds\n  {:<24}{:>7.2f} GB/s  {}\n  {:<24}{:>7.2f} GB/s  {}\n", "drive",
                    r.speeds.drive.per_second / 1e9, r.speeds.drive.origin, "memory",
                    r.speeds.memory.per_second / 1e9, r.speeds.memory.origin);
  text += formatted("  {:<24}{:>7.0f} billion multiply-adds a second  {}\n", "arithmetic",
                    r.speeds.arithmetic.per_second / 1e9, r.speeds.arithmetic.origin);
  if (r.speeds.arranged_per_second > 0.0) {
    text += formatted("  {:<24}{:>7.2f} GB/s  measured, of layers that are read from the drive\n",
                      "arranging", r.speeds.arranged_per_second / 1e9);
  }
  text += formatted("{:<26}{:>10}{:>12}{:>11}   {}\n", "text, token by token", "hits", "read/token",
                    "tokens/s", "limit");
  const bool is_dense = r.plan.experts_bytes == 0;
  if (is_dense) {
    text += decode_line("any text", f.natural_low);
  } else {
    text += decode_line("natural text, at best", f.natural_high);
    text += decode_line("natural text, at worst", f.natural_low);
    text += decode_line("random routing", f.uniform);
  }
  text += formatted("{:<26}{:>10}{:>12}{:>11}   {}\n",
                    formatted("a prompt of {} tokens", f.cold_prompt.tokens), "", "read",
                    "tokens/s", "limit");
  text += prompt_line(is_dense ? "any prompt" : "nothing cached", f.cold_prompt);
  if (!is_dense) text += prompt_line("cache full", f.warm_prompt);
  return text + formatted("Text is limited by {}.\nA prompt is limited by {}.\n",
                          explain_limit(f.natural_low.cost.limit),
                          explain_limit(f.cold_prompt.cost.limit));
}

}  // namespace moeflux
