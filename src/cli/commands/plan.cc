// moeflux plan: what a model takes and how fast it will be, here or on a machine that is described,
// and what limits it. Reads headers or a config.json, no weights.
#include <memory>
#include <optional>
#include <string>

#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "engine/cache_types.h"
#include "engine/dry_run.h"
#include "engine/forecast.h"
#include "engine/machine_probe.h"
#include "engine/memory_bandwidth.h"
#include "engine/model_sizes.h"
#include "io/host_memory.h"
#include "model/public_models.h"

namespace moeflux {
namespace {

struct Options {
  ModelOptions model;
  std::string like;
  std::string memory;  // empty: what is free
  std::optional<double> drive_gb;
  std::optional<double> memory_gb;
  std::optional<double> arithmetic_g;
  int assume_bits = 4;
  bool json = false;
};

// Rate of a current laptop's drive, for where nobody states one and nothing can be measured.
constexpr double kAssumedDrive = 3e9;
constexpr double kProbeSeconds = 1.0;
constexpr int64_t kPromptTokens = 512;

/// A speed and where it comes from.
struct Speed {
  double per_second = 0.0;
  std::string_view origin;  // "given", "measured", "assumed"
};

struct Speeds {
  Speed drive;
  Speed memory;
  Speed arithmetic;

  MachineSpeeds machine() const {
    return {drive.per_second, memory.per_second, arithmetic.per_second};
  }
};

struct Report {
  std::string model;
  const LoadedModel* loaded = nullptr;
  int64_t context = 0;
  MemoryPlan plan;
  Speeds speeds;
  Forecast forecast;
};

Result<std::unique_ptr<LoadedModel>> open_description(const Options& options, Device& device,
                                                      std::string& name) {
  const AssumedFormat assumed{.bits = options.assume_bits};
  if (!options.like.empty()) {
    name = options.like;
    const Result<PublicModel> found = find_public_model(options.like);
    if (!found.ok()) return found.error().with_context("--like");
    return assume_model(found->config_json, device, assumed);
  }
  MF_ASSIGN_OR_RETURN(name, model_directory(options.model));
  return describe_model(name, device, assumed);
}

Result<Speeds> find_speeds(const Options& options, const LoadedModel& model,
                           const Result<std::unique_ptr<Device>>& device) {
  Speeds speeds;
  if (options.drive_gb) {
    speeds.drive = {*options.drive_gb * 1e9, "given"};
  } else if (model.index.num_files() > 0 && model.experts.num_experts_total() > 0) {
    MF_ASSIGN_OR_RETURN(const IoMode mode, parse_io_mode(options.model.expert_io));
    MF_ASSIGN_OR_RETURN(const DriveProbe probe, probe_expert_reads(model, mode, kProbeSeconds));
    speeds.drive = {probe.bytes_per_second, "measured"};
  } else {
    speeds.drive = {kAssumedDrive, "assumed; see --drive"};
  }
  if (options.memory_gb) speeds.memory = {*options.memory_gb * 1e9, "given"};
  if (options.arithmetic_g) speeds.arithmetic = {*options.arithmetic_g * 1e9, "given"};
  if (options.memory_gb && options.arithmetic_g) return speeds;
  if (!device.ok()) return device.error();
  if (!options.memory_gb) {
    MF_ASSIGN_OR_RETURN(speeds.memory.per_second,
                        measure_read_bandwidth(**device, {.seconds = kProbeSeconds / 2}));
    speeds.memory.origin = "measured";
  }
  if (!options.arithmetic_g) {
    MF_ASSIGN_OR_RETURN(speeds.arithmetic.per_second,
                        measure_multiply_adds(**device, kProbeSeconds / 2));
    speeds.arithmetic.origin = "measured";
  }
  return speeds;
}

Result<uint64_t> available_bytes(const Options& options) {
  if (options.memory.empty()) return query_host_memory().available_bytes;
  const Result<uint64_t> bytes = parse_bytes(options.memory);
  if (!bytes.ok()) return bytes.error().with_context("--ram");
  return *bytes;
}

// As the engine plans: experts that stream stay in their file's order where the device takes it.
Result<MemoryPlan> plan_of(LoadedModel& model, const Device& device, const EngineOptions& engine,
                           int64_t context, uint64_t available) {
  const int64_t chunk = prefill_chunk_for(device, engine, context);
  const int64_t rows = logits_rows_max(model.spec(), chunk);
  MF_ASSIGN_OR_RETURN(const DryRun needs, dry_run(*model.model, chunk, rows));
  const auto logits_bytes = static_cast<uint64_t>(rows * model.spec().vocab_size) * sizeof(float);
  const MemoryPlanRequest request = {.available_bytes = available,
                                     .context_length = context,
                                     .step_tokens_max = chunk,
                                     .scratch_bytes = needs.scratch_bytes + logits_bytes,
                                     .expert_cache_bytes = engine.expert_cache_bytes};
  const MemoryPlan plan = plan_memory(model, request);
  if (!plan.streams() || !compute_as_stored(model.experts, device)) return plan;
  return plan_memory(model, request);
}

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

std::string render_json(const Report& r) {
  const Forecast& f = r.forecast;
  Json json{
      {"model", r.model},
      {"weights", r.loaded->assumed_weights.empty() ? "as stored" : r.loaded->assumed_weights},
      {"context", r.context}};
  json["memory"] = {{"available_bytes", r.plan.available_bytes},
                    {"dense_bytes", r.plan.dense_bytes},
                    {"state_bytes", r.plan.state_bytes},
                    {"cache_type_k", cache_type_name(r.loaded->cache_types.keys)},
                    {"cache_type_v", cache_type_name(r.loaded->cache_types.values)},
                    {"scratch_bytes", r.plan.scratch_bytes},
                    {"reader_bytes", r.plan.reader_bytes},
                    {"reserve_bytes", r.plan.reserve_bytes},
                    {"expert_cache_bytes", r.plan.expert_cache_bytes},
                    {"experts_bytes", r.plan.experts_bytes},
                    {"slot_bytes", r.plan.expert_slot_bytes},
                    {"bytes_per_expert_by_format", expert_bytes_by_format(r.loaded->experts)},
                    {"cached_share", f.cached_share},
                    {"fits", r.plan.fits()}};
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

std::string memory_line(std::string_view what, uint64_t bytes, std::string_view note = "") {
  return formatted("  {:<24}{:>10}{}{}\n", what, format_bytes(bytes), note.empty() ? "" : "  ",
                   note);
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

std::string render_memory(const Report& r) {
  const MemoryPlan& plan = r.plan;
  std::string text = formatted("memory: {} may be used\n", format_bytes(plan.available_bytes));
  text += memory_line("dense weights", plan.dense_bytes);
  text += memory_line("state", plan.state_bytes,
                      formatted("of a text of {} tokens, keys {} and values {}", r.context,
                                cache_type_name(r.loaded->cache_types.keys),
                                cache_type_name(r.loaded->cache_types.values)));
  text += memory_line("scratch", plan.scratch_bytes + plan.reader_bytes, "with reads on their way");
  text += memory_line("reserve", plan.reserve_bytes, "what nobody counts");
  const std::string share =
      formatted("{:.1f} % of the experts' {}", 100.0 * r.forecast.cached_share,
                format_bytes(plan.experts_bytes));
  text += memory_line("expert cache", plan.expert_cache_bytes, share);
  for (const auto& [format, bytes] : expert_bytes_by_format(r.loaded->experts)) {
    text += memory_line("an expert", bytes, format);
  }
  if (plan.fits()) return text;
  return text +
         "  it does not fit: everything but experts has to be in memory; a shorter context "
         "(-c) or fewer bits take less\n";
}

std::string render_text(const Report& r) {
  const Forecast& f = r.forecast;
  const std::string& weights = r.loaded->assumed_weights;
  std::string text = r.model + (weights.empty() ? "" : ", weights " + weights) + "\n";
  text += render_memory(r);
  text += formatted("speeds\n  {:<24}{:>7.2f} GB/s  {}\n  {:<24}{:>7.2f} GB/s  {}\n", "drive",
                    r.speeds.drive.per_second / 1e9, r.speeds.drive.origin, "memory",
                    r.speeds.memory.per_second / 1e9, r.speeds.memory.origin);
  text += formatted("  {:<24}{:>7.0f} billion multiply-adds a second  {}\n", "arithmetic",
                    r.speeds.arithmetic.per_second / 1e9, r.speeds.arithmetic.origin);
  text += formatted("{:<26}{:>10}{:>12}{:>11}   {}\n", "text, token by token", "hits", "read/token",
                    "tokens/s", "limit");
  text += decode_line("natural text, at best", f.natural_high);
  text += decode_line("natural text, at worst", f.natural_low);
  text += decode_line("random routing", f.uniform);
  text += formatted("{:<26}{:>10}{:>12}{:>11}   {}\n",
                    formatted("a prompt of {} tokens", f.cold_prompt.tokens), "", "read",
                    "tokens/s", "limit");
  text += prompt_line("nothing cached", f.cold_prompt);
  text += prompt_line("cache full", f.warm_prompt);
  return text + formatted("Text is limited by {}.\nA prompt is limited by {}.\n",
                          explain_limit(f.natural_low.cost.limit),
                          explain_limit(f.cold_prompt.cost.limit));
}

Status run(const Options& options) {
  if (!options.like.empty() && !options.model.model.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "plan takes -m FOLDER or --like NAME, not both");
  }
  MF_ASSIGN_OR_RETURN(const EngineOptions engine, engine_options(options.model));
  MF_ASSIGN_OR_RETURN(const uint64_t available, available_bytes(options));
  // A plan needs no device; where there is one, weights take what they take there.
  const auto device = open_device(options.model);
  const std::unique_ptr<Device> trace = make_trace_device(device.ok() ? device->get() : nullptr);
  Report report;
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                      open_description(options, *trace, report.model));
  MF_ASSIGN_OR_RETURN(model->cache_types, planned_cache_types(device, engine));
  report.loaded = model.get();
  MF_ASSIGN_OR_RETURN(report.context, context_length_for(model->spec(), engine));
  MF_ASSIGN_OR_RETURN(report.plan, plan_of(*model, *trace, engine, report.context, available));
  MF_ASSIGN_OR_RETURN(report.speeds, find_speeds(options, *model, device));
  MF_ASSIGN_OR_RETURN(report.forecast,
                      forecast(*model, report.plan, report.context,
                               std::min(kPromptTokens, report.context), report.speeds.machine()));
  return print_out(options.json ? render_json(report) : render_text(report));
}

}  // namespace

RegisteredCommand add_plan_command(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* app = program.add_subcommand(
      "plan", "Predict a model's memory and speed, here or on a machine you describe");
  add_model_options(*app, options->model);
  app->add_option("--like", options->like, "A public model (see synth --list), instead of a folder")
      ->check(not_empty());
  app->add_option("--ram", options->memory,
                  "Memory that may be used, like 12G (default: what is free here)")
      ->check(not_empty());
  const auto add_speed = [&](const char* name, std::optional<double>& speed, const char* help) {
    app->add_option(name, speed, help)->check(CLI::Range(1e-3, 1e6));
  };
  add_speed("--drive", options->drive_gb,
            "GB/s of reads of whole experts (default: measured on the model's folder)");
  add_speed("--memory-bandwidth", options->memory_gb, "GB/s (default: measured here)");
  add_speed("--arithmetic", options->arithmetic_g,
            "Billions of multiply-adds a second (default: measured here)");
  app->add_option("--assume-bits", options->assume_bits,
                  "Bits of weights to assume where there is only a config.json")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}))
      ->capture_default_str();
  app->add_flag("--json", options->json, "Print JSON");
  return {app, [options] { return run(*options); }};
}

}  // namespace moeflux
