#include "cli/plan/tier_report.h"

#include "base/format.h"
#include "base/units.h"
#include "engine/cache_types.h"
#include "plan/model_sizes.h"

namespace moeflux {
namespace {

std::string_view limit_name(TierLimit limit) {
  switch (limit) {
    case TierLimit::kDevice:
      return "device memory";
    case TierLimit::kLaunches:
      return "launches";
    case TierLimit::kCompute:
      return "arithmetic";
    case TierLimit::kBus:
      return "bus";
    case TierLimit::kMemory:
      return "host memory";
    case TierLimit::kDrive:
      return "drive";
  }
  __builtin_unreachable();
}

std::string_view home_name(ExpertHome home) {
  switch (home) {
    case ExpertHome::kDevice:
      return "device";
    case ExpertHome::kHostAndDevice:
      return "host and device";
    case ExpertHome::kDrive:
      return "drive";
  }
  __builtin_unreachable();
}

Json to_json(const TierStepForecast& step) {
  const TierCost& cost = step.cost;
  return {{"tokens", step.tokens},
          {"near_share", step.found.near},
          {"far_share", step.found.far},
          {"drive_share", step.found.drive},
          {"bus_bytes", cost.bus_bytes},
          {"drive_bytes", cost.drive_bytes},
          {"device_seconds", cost.device_seconds},
          {"launch_seconds", cost.launch_seconds},
          {"arithmetic_seconds", cost.compute_seconds},
          {"bus_seconds", cost.bus_seconds},
          {"memory_seconds", cost.memory_seconds},
          {"drive_seconds", cost.drive_seconds},
          {"total_seconds", cost.total_seconds},
          {"tokens_per_second", step.tokens_per_second()},
          {"limit", limit_name(cost.limit)}};
}

std::string step_line(std::string_view what, const TierStepForecast& step) {
  return formatted("  {:<24}{:>5.0f}{:>6.0f}{:>7.0f}{:>12}{:>12}{:>11.1f}   {}\n", what,
                   100.0 * step.found.near, 100.0 * step.found.far, 100.0 * step.found.drive,
                   format_bytes(static_cast<uint64_t>(step.cost.bus_bytes)),
                   format_bytes(static_cast<uint64_t>(step.cost.drive_bytes)),
                   step.tokens_per_second(), limit_name(step.cost.limit));
}

std::string head_line(std::string_view what, std::string_view unit) {
  return formatted("{:<26}{:>5}{:>6}{:>7}{:>12}{:>12}{:>11}   {}\n", what, "GPU", "host", "drive",
                   formatted("bus{}", unit), formatted("drive{}", unit), "tokens/s", "limit");
}

std::string speed_line(std::string_view what, const Speed& speed) {
  return formatted("  {:<24}{:>7.2f} GB/s  {}\n", what, speed.per_second / 1e9, speed.origin);
}

std::string why(const TierReport& r) {
  if (r.memory.experts_bytes == 0) return "The model has no experts.";
  const std::string all = format_bytes(r.memory.experts_bytes);
  switch (r.experts.home) {
    case ExpertHome::kDevice:
      return formatted("All experts, {}, lie on the device: its memory holds them beside the rest.",
                       all);
    case ExpertHome::kHostAndDevice:
      return formatted(
          "All experts, {}, lie in the host's memory, those used most on the device too: it has no "
          "room for all of them.",
          all);
    case ExpertHome::kDrive:
      return formatted(
          "Experts come from the drive: neither memory alone holds all of them, {}; those used "
          "most lie "
          "on the device, others in the host's memory.",
          all);
  }
  __builtin_unreachable();
}

std::string share_note(double share, std::string_view where) {
  return formatted("{:.1f} % of the experts, {}", 100.0 * share, where);
}

std::string card_line(size_t number, const CardPlan& card) {
  return formatted("  {:<7}{:>10}{:>8}{:>12}{:>11}{:>11}{:>11}{:>11}{:>10.0f} %\n",
                   formatted("GPU {}", number), format_bytes(card.free_bytes), card.layers,
                   format_bytes(card.memory.dense_bytes), format_bytes(card.memory.state_bytes),
                   format_bytes(card.memory.scratch_bytes + card.memory.reserve_bytes),
                   format_bytes(card.experts.near_bytes),
                   card.experts.holds_all ? "-" : format_bytes(card.experts.ring_bytes),
                   100.0 * card.work_share);
}

// The share of each of several devices.
std::string render_cards(const TierReport& r) {
  if (!r.cards) return "";
  std::string text =
      formatted("{:<9}{:>10}{:>8}{:>12}{:>11}{:>11}{:>11}{:>11}{:>12}\n", "GPUs", "memory",
                "layers", "dense", "state", "scratch+", "experts", "ring", "work");
  for (size_t i = 0; i < r.cards->cards.size(); ++i) text += card_line(i, r.cards->cards[i]);
  if (const uint64_t bytes = r.cards->device.dense.host_bytes; bytes > 0) {
    text += memory_line("dense on the host", bytes, "which no GPU has room for");
  }
  return text;
}

// A prompt of eight chunks, as devices work on them at once.
constexpr int64_t kPipedChunks = 8;
TierStepForecast piped_prompt(const TierReport& r) {
  TierStepForecast piped = r.forecast.prompts.back();
  piped.tokens *= kPipedChunks;
  piped.cost.bus_bytes *= kPipedChunks;
  piped.cost.drive_bytes *= kPipedChunks;
  piped.cost.total_seconds = piped_prompt_seconds(*r.cards, piped.cost.total_seconds, kPipedChunks);
  return piped;
}

std::string render_memory(const TierReport& r) {
  const MemoryPlan& plan = r.memory;
  std::string text =
      formatted("memory: {} of the device's and {} of the host's may be used\n",
                format_bytes(r.machine.device_bytes), format_bytes(plan.available_bytes));
  if (r.split) {
    text += memory_line("dense weights", r.split->share.dense_bytes, "on the device");
    text += memory_line("others", r.split->dense.host_bytes,
                        "in the host's memory, for copies or its processor");
  } else {
    text += memory_line("dense weights", plan.dense_bytes, "on the device, as all but experts");
  }
  text += memory_line("state", plan.state_bytes,
                      formatted("of a text of {} tokens, keys {} and values {}", r.context,
                                cache_type_name(r.model->cache_types.keys),
                                cache_type_name(r.model->cache_types.values)));
  text += context_line(plan, r.context);
  const std::string listed =
      plan.listed_bytes == 0
          ? ""
          : formatted(", with {} for the keys that tokens list", format_bytes(plan.listed_bytes));
  text += memory_line("scratch", plan.scratch_bytes,
                      formatted("of {} tokens of a prompt at once{}", r.step_tokens, listed));
  text += memory_line("reserve", r.reserve_bytes(), "tables, workspace, the driver");
  if (!r.refusal.empty()) return text + formatted("  it does not fit: {}\n", r.refusal);
  if (!r.fits()) {
    return text +
           "  it does not fit: what all tokens need has to be in the device's memory, and room for "
           "an expert in the host's; a shorter context (-c) or fewer bits take less, and --device "
           "cpu needs no memory of a device\n";
  }
  if (plan.experts_bytes == 0) return text;
  text += memory_line("experts on the device", r.experts.near_bytes,
                      share_note(r.forecast.near_share, "in its memory"));
  if (r.experts.home == ExpertHome::kDevice) return text;
  if (r.experts.ring_bytes > 0) {
    text += memory_line("ring", r.experts.ring_bytes, "a prompt's experts on their way");
  }
  const bool all_far = r.experts.home == ExpertHome::kHostAndDevice;
  text += memory_line("experts on the host", r.experts.far_bytes,
                      all_far ? "all of them, in the host's memory"
                              : share_note(r.forecast.far_share, "in the host's memory"));
  return text;
}

}  // namespace

bool TierReport::fits() const {
  if (split) return true;
  if (cards) return experts.home != ExpertHome::kDrive || memory.fits();
  if (!refusal.empty()) return false;
  return taken_bytes() <= machine.device_bytes &&
         (experts.home != ExpertHome::kDrive || memory.fits());
}

std::string memory_line(std::string_view what, uint64_t bytes, std::string_view note) {
  return formatted("  {:<24}{:>10}{}{}\n", what, format_bytes(bytes), note.empty() ? "" : "  ",
                   note);
}

std::string context_line(const MemoryPlan& plan, int64_t planned) {
  if (plan.context_length <= planned) return "";
  return memory_line("a full context", plan.context_bytes,
                     formatted("of {} tokens, what memory allows{}", plan.context_length,
                               plan.experts_bytes == 0 ? "" : "; long texts take it from experts"));
}

Json tier_json(const TierReport& r) {
  Json json;
  json["memory"] = {{"device_bytes", r.machine.device_bytes},
                    {"available_bytes", r.memory.available_bytes},
                    {"dense_bytes", r.memory.dense_bytes},
                    {"dense_host_bytes", r.split ? r.split->dense.host_bytes : 0},
                    {"state_bytes", r.memory.state_bytes},
                    {"state_tokens", r.context},
                    {"context_bytes", r.memory.context_bytes},
                    {"prompt_tokens_at_once", r.step_tokens},
                    {"scratch_bytes", r.memory.scratch_bytes},
                    {"listed_key_bytes", r.memory.listed_bytes},
                    {"table_rows_bytes", r.memory.table_rows_bytes},
                    {"reserve_bytes", r.reserve_bytes()},
                    {"experts_bytes", r.memory.experts_bytes},
                    {"slot_bytes", r.memory.expert_slot_bytes},
                    {"bytes_per_expert_by_format", expert_bytes_by_format(r.model->experts)},
                    {"fits", r.fits()}};
  const auto speed = [](const Speed& s) {
    return Json{{"per_second", s.per_second}, {"origin", s.origin}};
  };
  json["speeds"] = {{"device_bytes", speed(r.machine.device)},
                    {"bus_bytes", speed(r.machine.bus)},
                    {"memory_bytes", speed(r.machine.memory)},
                    {"drive_bytes", speed(r.machine.drive)},
                    {"multiply_adds", speed(r.machine.arithmetic)}};
  if (!r.fits()) return json;
  json["experts"] = {{"home", home_name(r.experts.home)},   {"near_bytes", r.experts.near_bytes},
                     {"ring_bytes", r.experts.ring_bytes},  {"far_bytes", r.experts.far_bytes},
                     {"near_share", r.forecast.near_share}, {"far_share", r.forecast.far_share}};
  json["decode"] = {{"uniform", to_json(r.forecast.uniform)},
                    {"natural_low", to_json(r.forecast.natural_low)},
                    {"natural_high", to_json(r.forecast.natural_high)}};
  if (r.cards) {
    json["cards"] = Json::array();
    for (const CardPlan& card : r.cards->cards) {
      json["cards"].push_back({{"device_bytes", card.free_bytes},
                               {"layers", card.layers},
                               {"dense_bytes", card.memory.dense_bytes},
                               {"state_bytes", card.memory.state_bytes},
                               {"scratch_bytes", card.memory.scratch_bytes},
                               {"reserve_bytes", card.memory.reserve_bytes},
                               {"near_bytes", card.experts.near_bytes},
                               {"ring_bytes", card.experts.ring_bytes},
                               {"holds_all", card.experts.holds_all},
                               {"work_share", card.work_share}});
    }
    json["piped_prompt"] = to_json(piped_prompt(r));
  }
  json["prompts"] = Json::array();
  for (const TierStepForecast& prompt : r.forecast.prompts) {
    json["prompts"].push_back(to_json(prompt));
  }
  return json;
}

std::string tier_text(const TierReport& r) {
  std::string text = render_memory(r) + render_cards(r);
  text += "speeds\n" + speed_line("device memory", r.machine.device) +
          speed_line("bus", r.machine.bus) + speed_line("host memory", r.machine.memory) +
          speed_line("drive", r.machine.drive);
  text += formatted("  {:<24}{:>7.0f} billion multiply-adds a second  {}\n", "arithmetic",
                    r.machine.arithmetic.per_second / 1e9, r.machine.arithmetic.origin);
  if (!r.fits()) return text;
  text += head_line("text, token by token, %", "/token");
  if (r.memory.experts_bytes == 0) {
    text += step_line("any text", r.forecast.natural_low);
  } else {
    text += step_line("natural text, at best", r.forecast.natural_high);
    text += step_line("natural text, at worst", r.forecast.natural_low);
    text += step_line("random routing", r.forecast.uniform);
  }
  text += head_line("a prompt, %", "");
  for (const TierStepForecast& prompt : r.forecast.prompts) {
    text += step_line(formatted("of {} tokens", prompt.tokens), prompt);
  }
  if (r.cards) {
    const TierStepForecast piped = piped_prompt(r);
    text += step_line(formatted("of {} tokens, piped", piped.tokens), piped);
  }
  text += why(r) + "\n";
  text += formatted("Text is limited by {}.\n", explain_limit(r.forecast.natural_low.cost.limit));
  return text + formatted("A prompt of {} tokens is limited by {}.\n",
                          r.forecast.prompts.back().tokens,
                          explain_limit(r.forecast.prompts.back().cost.limit));
}

}  // namespace moeflux
