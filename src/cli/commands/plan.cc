// moeflux plan, in one file as its two kinds of machines share options: how much memory a model
// takes and how fast it will be, here or on a machine that is described, and what limits it. Reads
// headers or a config.json, no weights.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu/gpu_device.h"
#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/commands/command.h"
#include "cli/commands/plan_summary.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "cli/tier_report.h"
#include "engine/cache_types.h"
#include "io/host_memory.h"
#include "model/family/public_models.h"
#include "plan/dense_fit.h"
#include "plan/dense_stream.h"
#include "plan/device_plan.h"
#include "plan/dry_run.h"
#include "plan/forecast.h"
#include "plan/machine_probe.h"
#include "plan/memory_bandwidth.h"
#include "plan/model_sizes.h"

namespace moeflux {
namespace {

struct Options {
  ModelOptions model;
  std::string like;
  std::string memory;  // empty: what is free
  std::optional<double> drive_gb;
  std::optional<double> memory_gb;
  std::optional<double> arithmetic_g;
  std::vector<std::string> device_memory;  // of each GPU; empty: what the device has, if any
  std::optional<double> device_memory_gb;
  std::optional<double> bus_gb;
  int assume_bits = 4;
  std::string type;  // of a GGUF file; empty: none
  bool json = false;
};

// Rate of a current laptop's drive, for where nobody states one and nothing can be measured.
constexpr double kAssumedDrive = 3e9;
// Two channels of DDR5, and eight cores of a desktop with AVX2, for machines that a form describes.
constexpr double kAssumedMemory = 60e9;
constexpr double kAssumedCpuMultiplyAdds = 400e9;
// PCIe 4 x16, and memory of a GPU of the middle class.
constexpr double kAssumedBus = 25e9;
constexpr double kAssumedDeviceMemory = 400e9;
// An H200's for each byte that its memory gives: 79e12 in prompts of 4096 tokens of a model of 35
// billion parameters, at 27,791 tokens a second, and 4.3e12 bytes.
constexpr double kAssumedMultiplyAdds = 18.4;
constexpr double kProbeSeconds = 1.0;
constexpr int64_t kPromptTokens = 512;

struct Speeds {
  Speed drive;
  Speed memory;
  Speed arithmetic;
  double arranged_per_second = 0.0;  // of layers on the drive; see LayerSpeeds

  LayerSpeeds layers() const { return {drive.per_second, arranged_per_second}; }
  MachineSpeeds machine(const std::optional<DenseStream>& stream) const {
    return {stream ? layers().bytes_per_second(*stream) : drive.per_second, memory.per_second,
            arithmetic.per_second};
  }
};

struct Report {
  std::string model;
  const LoadedModel* loaded = nullptr;
  int64_t context = 0;
  MemoryPlan plan;
  Speeds speeds;
  Forecast forecast;
  std::optional<DenseStream> stream;  // of a model without experts that memory does not hold
};

Result<std::unique_ptr<LoadedModel>> open_description(const Options& options, Device& device,
                                                      std::string& name) {
  AssumedFormat assumed{.bits = options.assume_bits};
  if (!options.type.empty()) {
    assumed.type = find_ggml_type(options.type);
    if (assumed.type == nullptr || !assumed.type->format) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--type {}: expected a type of GGUF files, like Q4_K or IQ3_S",
                        options.type);
    }
  }
  const ModelUse use{.draft_layer = options.model.engine.draft_layer};
  if (!options.like.empty()) {
    name = options.like;
    const Result<PublicModel> found = find_public_model(options.like);
    if (!found.ok()) return found.error().with_context("--like");
    return assume_model(found->config_json, device, assumed, use);
  }
  MF_ASSIGN_OR_RETURN(name, model_directory(options.model));
  return describe_model(name, device, assumed, use);
}

Result<Speed> find_drive(const Options& options, const LoadedModel& model, bool reads_layers) {
  if (options.drive_gb) return Speed{*options.drive_gb * 1e9, "given"};
  const bool is_dense = model.experts.num_experts_total() == 0;
  if (model.index.num_files() == 0 || (is_dense && !reads_layers)) {
    return Speed{kAssumedDrive, "assumed; see --drive"};
  }
  if (is_dense) {
    MF_ASSIGN_OR_RETURN(const double measured,
                        probe_layer_reads(model, options.model.engine.expert_io, kProbeSeconds));
    return Speed{measured, "measured"};
  }
  MF_ASSIGN_OR_RETURN(const DriveProbe probe,
                      probe_expert_reads(model, options.model.engine.expert_io, kProbeSeconds));
  return Speed{probe.bytes_per_second, "measured"};
}

// The given speed, or that of the device's memory; `device` may be null where nothing is
// measured.
Result<Speed> find_memory(const std::optional<double>& given_gb, Device* device) {
  if (given_gb) return Speed{*given_gb * 1e9, "given"};
  MF_ASSIGN_OR_RETURN(const double measured,
                      measure_read_bandwidth(*device, {.seconds = kProbeSeconds / 2}));
  return Speed{measured, "measured"};
}

// As find_memory(); what has no bus of its own is described by one that is assumed.
Result<Speed> find_bus(const Options& options, Device* device) {
  if (options.bus_gb) return Speed{*options.bus_gb * 1e9, "given"};
  if (device == nullptr || !device->part(0).copies_beside()) {
    return Speed{kAssumedBus, "assumed; see --pcie"};
  }
  MF_ASSIGN_OR_RETURN(const double measured,
                      measure_bus_bandwidth(device->part(0), {.seconds = kProbeSeconds / 4}));
  return Speed{measured, "measured"};
}

Result<Speed> find_arithmetic(const Options& options, Device* device) {
  if (options.arithmetic_g) return Speed{*options.arithmetic_g * 1e9, "given"};
  MF_ASSIGN_OR_RETURN(const double measured, measure_multiply_adds(*device, kProbeSeconds / 2));
  return Speed{measured, "measured"};
}

Result<Speeds> find_speeds(const Options& options, const LoadedModel& model,
                           const Result<std::unique_ptr<Device>>& device, bool reads_layers) {
  Speeds speeds;
  MF_ASSIGN_OR_RETURN(speeds.drive, find_drive(options, model, reads_layers));
  if (!device.ok() && !(options.memory_gb && options.arithmetic_g)) return device.error();
  Device* const here = device.ok() ? device->get() : nullptr;
  MF_ASSIGN_OR_RETURN(speeds.memory, find_memory(options.memory_gb, here));
  MF_ASSIGN_OR_RETURN(speeds.arithmetic, find_arithmetic(options, here));
  return speeds;
}

// A device that is here is measured. `here` is null for one that is described: what nobody said of
// it is assumed. The host is this one unless it is described.
Result<TierMachine> find_tier_machine(const Options& options, const LoadedModel& model,
                                      uint64_t device_bytes, Device* here) {
  TierMachine machine{.device_bytes = device_bytes};
  machine.threads =
      options.model.device.threads > 0 ? options.model.device.threads : default_cpu_threads();
  MF_ASSIGN_OR_RETURN(machine.drive, find_drive(options, model, /*reads_layers=*/false));
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Device> host,
                      make_cpu_device({.threads = options.model.device.threads}));
  MF_ASSIGN_OR_RETURN(machine.memory, find_memory(options.memory_gb, host.get()));
  MF_ASSIGN_OR_RETURN(machine.bus, find_bus(options, here));
  if (here != nullptr) {
    // The first stands for several, which work in turn.
    MF_ASSIGN_OR_RETURN(machine.device, find_memory(options.device_memory_gb, &here->part(0)));
    MF_ASSIGN_OR_RETURN(machine.arithmetic, find_arithmetic(options, &here->part(0)));
    return machine;
  }
  machine.device = options.device_memory_gb
                       ? Speed{*options.device_memory_gb * 1e9, "given"}
                       : Speed{kAssumedDeviceMemory, "assumed; see --vram-bandwidth"};
  machine.arithmetic =
      options.arithmetic_g
          ? Speed{*options.arithmetic_g * 1e9, "given"}
          : Speed{kAssumedMultiplyAdds * machine.device.per_second, "assumed; see --arithmetic"};
  return machine;
}

Result<uint64_t> available_bytes(const Options& options) {
  if (options.memory.empty()) return query_host_memory().available_bytes;
  const Result<uint64_t> bytes = parse_bytes(options.memory);
  if (!bytes.ok()) return bytes.error().with_context("--ram");
  return *bytes;
}

// The memory of each GPU that --vram describes.
Result<std::vector<uint64_t>> described_memory(const Options& options) {
  std::vector<uint64_t> memory;
  for (const std::string& size : options.device_memory) {
    const Result<uint64_t> bytes = parse_bytes(size);
    if (!bytes.ok()) return bytes.error().with_context("--vram");
    memory.push_back(*bytes);
  }
  return memory;
}

// As the engine plans: experts that stream stay in their file's order where the device takes it.
// `listed_bytes` are those of a device with memory of its own.
Result<MemoryPlan> plan_of(LoadedModel& model, const Device& device, const EngineOptions& engine,
                           int64_t context, uint64_t available, uint64_t listed_bytes = 0) {
  const int64_t chunk = prefill_chunk_for(device, engine, context);
  const int64_t rows = logits_rows_max(model.spec(), chunk);
  MF_ASSIGN_OR_RETURN(const DryRun needs, dry_run(*model.model, chunk, rows));
  const auto logits_bytes = static_cast<uint64_t>(rows * model.spec().vocab_size) * sizeof(float);
  const MemoryPlanRequest request = {
      .available_bytes = available,
      .context_length = context,
      .context_may_grow = engine.context_length == 0,
      .step_tokens_max = chunk,
      .scratch_bytes = needs.scratch_bytes + logits_bytes + listed_bytes,
      .listed_bytes = listed_bytes,
      .expert_cache_bytes = engine.expert_cache_bytes};
  const MemoryPlan plan = plan_memory(model, request);
  if (!plan.streams() || !compute_as_stored(model.experts, device)) return plan;
  return plan_memory(model, request);
}

// Where the user asks for it, the plan is that of layers read from the drive for every step.
Status plan_stream(const LoadedModel& model, const Device& device, const EngineOptions& engine,
                   Report& report) {
  MF_ASSIGN_OR_RETURN(
      report.stream,
      plan_dense_stream(model, {.available_bytes = report.plan.available_bytes,
                                .context_length = report.context,
                                .step_tokens = prefill_chunk_for(device, engine, report.context),
                                .step_tokens_max = engine.prefill_chunk > 0 ? 0 : report.context,
                                .layers_bytes = engine.expert_cache_bytes}));
  if (!engine.stream_dense) return {};
  report.plan.streamed_bytes = report.stream->streamed_bytes;
  report.plan.dense_bytes += report.stream->places.ring.bytes();
  report.plan.dense_bytes -= report.stream->streamed_bytes;
  return {};
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
      {"context", r.plan.context_length}};
  json["memory"] = {{"available_bytes", r.plan.available_bytes},
                    {"dense_bytes", r.plan.dense_bytes},
                    {"streamed_bytes", r.plan.streamed_bytes},
                    {"state_bytes", r.plan.state_bytes},
                    {"state_tokens", r.context},
                    {"context_bytes", r.plan.context_bytes},
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
  if (plan.streamed_bytes > 0) {
    text += memory_line("layers on the drive", plan.streamed_bytes, "that every step reads");
  }
  text += memory_line("state", plan.state_bytes,
                      formatted("of a text of {} tokens, keys {} and values {}", r.context,
                                cache_type_name(r.loaded->cache_types.keys),
                                cache_type_name(r.loaded->cache_types.values)));
  text += context_line(plan, r.context);
  text += memory_line("scratch", plan.scratch_bytes + plan.reader_bytes, "with reads on their way");
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

// A processor's kernels and a device's matrix units multiply such a matrix with the same bits.
bool is_for_helper(const ClaimedModule& module, const Device& helper) {
  const int64_t cols = module.shape.back();
  const int64_t rows = module.shape.num_elements() / cols;
  return helper.multiplies_units(lay_out(format_in_memory(module.format, rows, cols), rows, cols));
}

// Divides dense weights between the memories of device and host, as the engine would. Gives the
// bytes that every token reads there: of a table that is looked up it reads a row.
FarDense split_dense(const LoadedModel& model, const EngineOptions& engine, int64_t chunk,
                     uint64_t memory_bytes, TierReport& report) {
  Result<DevicePlan> split = plan_device(model, {.free_bytes = memory_bytes,
                                                 .context_length = report.context,
                                                 .step_tokens = chunk,
                                                 .step_may_shrink = engine.prefill_chunk == 0,
                                                 .copies_beside = true,
                                                 .near_cache_bytes = engine.near_cache_bytes});
  if (!split.ok()) {
    report.refusal = split.error().message();
    return {};
  }
  const Status fits = check_dense_fit(model, {.available_bytes = report.memory.available_bytes,
                                              .device_bytes = split->dense.device_bytes});
  if (!fits.ok()) {
    report.refusal = fits.error().message();
    return {};
  }
  const auto helper = make_cpu_device({.precision = Precision::kQ16});
  FarDense far{.has_helper = helper.ok()};
  for (size_t i = 0; i < model.modules.size(); ++i) {
    const ClaimedModule& module = model.modules[i];
    const bool is_looked_up = module.canonical == "embed_tokens" && model.dense.lookup_bytes > 0;
    if (!split->dense.on_host[i] || is_looked_up) continue;
    far.bytes += module.placed_bytes;
    if (!module.is_network || split->networks_bytes == 0) continue;
    far.network_bytes += module.placed_bytes;
    far.has_helper = far.has_helper && is_for_helper(module, **helper);
  }
  report.memory.on_device = split->share;
  report.split = *std::move(split);
  return far;
}

// The same of several GPUs, with their experts. They give up what does not fit as one does.
Status split_cards(const LoadedModel& model, const EngineOptions& engine, int64_t chunk,
                   std::span<const uint64_t> memory, Device* here, TierReport& report) {
  std::vector<double> speeds;
  for (size_t i = 0; i < memory.size() && here != nullptr; ++i) {
    speeds.push_back(here->part(i).memory_bytes_per_second());
  }
  Result<SplitPlan> cards = plan_split(model, report.memory,
                                       {.free_bytes = {memory.begin(), memory.end()},
                                        .bytes_per_second = speeds,
                                        .context_length = report.context,
                                        .step_tokens = chunk,
                                        .step_may_shrink = engine.prefill_chunk == 0,
                                        .experts = {.expert_cache_bytes = engine.expert_cache_bytes,
                                                    .near_cache_bytes = engine.near_cache_bytes}});
  if (!cards.ok() && cards.error().code() == ErrorCode::kResourceExhausted) {
    report.refusal = cards.error().message();
    return {};
  }
  if (!cards.ok()) return cards.error();
  report.experts = cards->experts;
  report.cards = *std::move(cards);
  return {};
}

// On a machine whose devices have memory of their own, `memory` of each.
Result<std::string> plan_tiers(const Options& options, const EngineOptions& engine,
                               uint64_t available, std::span<const uint64_t> memory, Device* here,
                               PlanSummary* summary) {
  const uint64_t memory_bytes = std::accumulate(memory.begin(), memory.end(), uint64_t{0});
  const auto like = [&](uint64_t free_bytes) {
    return make_emulator_device({.matrix_units = true, .memory_bytes = free_bytes});
  };
  const std::unique_ptr<Device> empty = like(memory_bytes);
  const std::unique_ptr<Device> trace = make_trace_device(here == nullptr ? empty.get() : here);
  TierReport report;
  std::string name;
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                      open_description(options, *trace, name));
  MF_ASSIGN_OR_RETURN(model->cache_types,
                      cache_types_for(here == nullptr ? *empty : *here, model->spec(), engine));
  report.model = model.get();
  MF_ASSIGN_OR_RETURN(report.context, planned_tokens_for(model->spec(), engine));
  // A prompt's steps are chosen when the dense weights are loaded.
  const auto loaded = like(memory_bytes - std::min(memory_bytes, model->dense.bytes));
  const std::unique_ptr<Device> stepping = make_trace_device(loaded.get());
  const int64_t chunk = prefill_chunk_for(*stepping, engine, report.context);
  MF_ASSIGN_OR_RETURN(
      report.memory, plan_of(*model, *stepping, engine, report.context, available,
                             listed_keys_bytes(model->spec(), model->cache_types, report.context)));
  const uint64_t taken = report.memory.dense_bytes + report.memory.scratch_bytes;
  report.experts = plan_experts(
      model->experts, report.memory,
      DeviceMemory{.free_bytes = memory_bytes - std::min(memory_bytes, taken),
                   .taken_bytes = report.memory.state_bytes + device_reserve(memory_bytes),
                   .copies_beside = here == nullptr || here->part(0).copies_beside()},
      {.expert_cache_bytes = engine.expert_cache_bytes,
       .near_cache_bytes = engine.near_cache_bytes});
  FarDense far;
  if (memory.size() > 1) {
    MF_RETURN_IF_ERROR(split_cards(*model, engine, chunk, memory, here, report));
  } else if (report.memory.experts_bytes == 0 && report.taken_bytes() > memory_bytes) {
    far = split_dense(*model, engine, chunk, memory_bytes, report);
  }
  MF_ASSIGN_OR_RETURN(report.machine, find_tier_machine(options, *model, memory_bytes, here));
  std::vector<int64_t> prompts = {std::min(kPromptTokens, report.context)};
  if (chunk > prompts.front()) prompts.push_back(chunk);
  MF_ASSIGN_OR_RETURN(report.forecast, forecast_tiers(*model, report.experts, report.context,
                                                      prompts, report.machine.speeds(), far));
  if (report.cards) add_hand_overs(report.forecast, memory.size());
  if (summary != nullptr) {
    *summary = {.fits = report.fits(),
                .needed_bytes = report.taken_bytes(),
                .experts_bytes = report.memory.experts_bytes,
                .on_device = true};
    if (summary->fits) {
      summary->tokens_low = report.forecast.natural_low.tokens_per_second();
      summary->tokens_high = report.forecast.natural_high.tokens_per_second();
      summary->reads_drive = report.experts.home == ExpertHome::kDrive;
    }
    summary->speeds = {.drive_gb = options.drive_gb,
                       .memory_gb = report.machine.memory.per_second / 1e9,
                       .arithmetic_g = report.machine.arithmetic.per_second / 1e9,
                       .device_memory_gb = report.machine.device.per_second / 1e9};
    return std::string();
  }
  const std::string& weights = model->assumed_weights;
  if (!options.json) {
    return name + (weights.empty() ? "" : ", weights " + weights) + "\n" + tier_text(report);
  }
  Json json = tier_json(report);
  json["model"] = name;
  json["weights"] = weights.empty() ? "as stored" : weights;
  json["context"] = report.memory.context_length;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The report as text, or nothing where there is a `summary` to fill.
Result<std::string> plan(const Options& options, PlanSummary* summary = nullptr) {
  if (!options.like.empty() && !(options.model.model.empty() && options.model.hub_name.empty())) {
    return make_error(ErrorCode::kInvalidArgument, "plan takes -m FOLDER or --like NAME, not both");
  }
  if (!options.type.empty() && options.like.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--type is for --like NAME: the model at -m has types of its own");
  }
  MF_ASSIGN_OR_RETURN(const EngineOptions engine, engine_options(options.model));
  MF_ASSIGN_OR_RETURN(const uint64_t available, available_bytes(options));
  if (!options.device_memory.empty()) {
    MF_ASSIGN_OR_RETURN(const std::vector<uint64_t> memory, described_memory(options));
    return plan_tiers(options, engine, available, memory, nullptr, summary);
  }
  // A plan needs no device; where there is one, weights take what they take there.
  const auto device = open_device(options.model);
  if (device.ok() && (*device)->free_bytes()) {
    std::vector<uint64_t> memory = (*device)->free_bytes_by_part();
    if (memory.empty()) memory.push_back(*(*device)->free_bytes());
    return plan_tiers(options, engine, available, memory, device->get(), summary);
  }
  if (options.bus_gb || options.device_memory_gb || engine.near_cache_bytes) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "--pcie, --vram-bandwidth and --near-cache are of a device with memory of its "
        "own: say how much with --vram");
  }
  const std::unique_ptr<Device> trace = make_trace_device(device.ok() ? device->get() : nullptr);
  Report report;
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                      open_description(options, *trace, report.model));
  MF_ASSIGN_OR_RETURN(model->cache_types, planned_cache_types(device, model->spec(), engine));
  report.loaded = model.get();
  MF_ASSIGN_OR_RETURN(report.context, planned_tokens_for(model->spec(), engine));
  MF_ASSIGN_OR_RETURN(report.plan, plan_of(*model, *trace, engine, report.context, available));
  if (model->experts.num_experts_total() == 0 && (engine.stream_dense || !report.plan.fits())) {
    const Status streamed = plan_stream(*model, *trace, engine, report);
    if (engine.stream_dense) MF_RETURN_IF_ERROR(streamed);
  }
  MF_ASSIGN_OR_RETURN(report.speeds,
                      find_speeds(options, *model, device, report.stream.has_value()));
  if (report.stream && report.stream->arranged_bytes > 0 && device.ok()) {
    MF_ASSIGN_OR_RETURN(
        report.speeds.arranged_per_second,
        measure_arranging(*model, **device, arranging_threads(), kProbeSeconds / 4));
  }
  const int64_t prompt =
      std::max(kPromptTokens, report.plan.streamed_bytes > 0 ? report.stream->step_tokens : 0);
  MF_ASSIGN_OR_RETURN(report.forecast, forecast(*model, report.plan, report.context,
                                                std::min(prompt, report.context),
                                                report.speeds.machine(report.stream)));
  if (summary != nullptr) {
    const MemoryPlan& plan = report.plan;
    *summary = {.fits = plan.fits(),
                .needed_bytes = plan.taken_bytes(),
                .experts_bytes = plan.experts_bytes,
                .reads_drive = plan.streams(),
                .tokens_low = report.forecast.natural_low.tokens_per_second(),
                .tokens_high = report.forecast.natural_high.tokens_per_second(),
                .speeds = {.drive_gb = options.drive_gb,
                           .memory_gb = report.speeds.memory.per_second / 1e9,
                           .arithmetic_g = report.speeds.arithmetic.per_second / 1e9}};
    return std::string();
  }
  return options.json ? render_json(report) : render_text(report);
}

// A number of a described machine; nothing where it is absent.
Status read_number(const Json& machine, const char* name, double low, double high,
                   std::optional<double>& into) {
  const auto found = machine.find(name);
  if (found == machine.end() || found->is_null()) return {};
  const bool is_right =
      found->is_number() && found->get<double>() >= low && found->get<double>() <= high;
  if (!is_right) {
    return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected a number of {:g} to {:g}",
                      name, json_excerpt(*found), low, high);
  }
  into = found->get<double>();
  return {};
}

Status read_name(const Json& machine, const char* name, std::string& into) {
  const auto found = machine.find(name);
  if (found == machine.end() || found->is_null()) return {};
  if (!found->is_string()) {
    return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected a string", name,
                      json_excerpt(*found));
  }
  into = found->get<std::string>();
  return {};
}

// Speeds that are absent are assumed, as measuring would take them from whoever computes here.
Status read_machine(const Json& machine, Options& options) {
  constexpr double kBytesMin = 1 << 20;
  constexpr double kBytesMax = 1e15;
  constexpr double kRateMin = 1e-3;
  constexpr double kRateMax = 1e6;
  if (!machine.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "the machine is {}, expected an object",
                      json_excerpt(machine));
  }
  std::optional<double> ram;
  std::optional<double> vram;
  std::optional<double> context;
  MF_RETURN_IF_ERROR(read_name(machine, "like", options.like));
  MF_RETURN_IF_ERROR(read_name(machine, "type", options.type));
  MF_RETURN_IF_ERROR(read_number(machine, "ctx_size", 1, 1e8, context));
  MF_RETURN_IF_ERROR(read_number(machine, "ram_bytes", kBytesMin, kBytesMax, ram));
  MF_RETURN_IF_ERROR(read_number(machine, "vram_bytes", kBytesMin, kBytesMax, vram));
  MF_RETURN_IF_ERROR(read_number(machine, "drive_gb_s", kRateMin, kRateMax, options.drive_gb));
  MF_RETURN_IF_ERROR(read_number(machine, "ram_gb_s", kRateMin, kRateMax, options.memory_gb));
  MF_RETURN_IF_ERROR(
      read_number(machine, "vram_gb_s", kRateMin, kRateMax, options.device_memory_gb));
  MF_RETURN_IF_ERROR(read_number(machine, "pcie_gb_s", kRateMin, kRateMax, options.bus_gb));
  MF_RETURN_IF_ERROR(read_number(machine, "gmac_s", kRateMin, kRateMax, options.arithmetic_g));
  if (!ram) {
    return make_error(ErrorCode::kInvalidArgument,
                      "ram_bytes is absent, expected the host's memory in bytes");
  }
  options.memory = formatted("{:.0f}", *ram);
  if (vram) options.device_memory = {formatted("{:.0f}", *vram)};
  if (context) options.model.engine.context_length = static_cast<int64_t>(*context);
  if (!options.drive_gb) options.drive_gb = kAssumedDrive / 1e9;
  if (!options.memory_gb) options.memory_gb = kAssumedMemory / 1e9;
  if (!options.arithmetic_g && !vram) options.arithmetic_g = kAssumedCpuMultiplyAdds / 1e9;
  return {};
}

}  // namespace

Result<PlanSummary> summarize_plan(const std::string& path, const PlanSpeeds& speeds) {
  Options options{.drive_gb = speeds.drive_gb,
                  .memory_gb = speeds.memory_gb,
                  .arithmetic_g = speeds.arithmetic_g,
                  .device_memory_gb = speeds.device_memory_gb};
  options.model.model = path;
  PlanSummary summary;
  MF_ASSIGN_OR_RETURN(const std::string text, plan(options, &summary));
  (void)text;
  return summary;
}

Result<Json> forecast_described(const Json& machine, const std::string& model) {
  Options options{.json = true};
  options.model.device.name = "cpu";  // a GPU that is here would be measured
  options.model.device.threads = 1;   // the machine is described: nobody computes
  MF_RETURN_IF_ERROR(read_machine(machine, options));
  if (options.like.empty()) options.model.model = model;
  MF_ASSIGN_OR_RETURN(const std::string text, plan(options));
  return parse_json(text, "the plan");
}

std::vector<std::string> forecast_names() {
  std::vector<std::string> names;
  for (const PublicModel& model : public_models()) names.emplace_back(model.name);
  return names;
}

namespace {

void add_machine_options(CommandOptions& command, Options& options) {
  const auto add_speed = [&](const char* name, std::optional<double>& speed, const char* help) {
    command.add(name, speed, help).value("RATE").range(1e-3, 1e6);
  };
  command.group("Machine (default: this one)");
  command.add_size("--ram", options.memory, "Host memory to use, like 12G (default: what is free)");
  add_speed("--drive", options.drive_gb,
            "GB/s of reads of whole experts (default: measured on the model's folder)");
  add_speed("--memory-bandwidth", options.memory_gb, "GB/s of host memory (default: measured)");
  add_speed("--arithmetic", options.arithmetic_g,
            "Billions of multiply-adds a second (default: measured; with --vram derived from the "
            "GPU's memory bandwidth)");
  command.add_sizes("--vram", options.device_memory,
                    "GPU memory, like 12G, of two cards 8G,3G (default: the GPU here)");
  add_speed("--vram-bandwidth", options.device_memory_gb,
            "GB/s of GPU memory, a tenth below the data sheet (default: 400)");
  add_speed("--pcie", options.bus_gb,
            "GB/s of copies between host and GPU: 25 for PCIe 4 x16, 50 for PCIe 5, half of it for "
            "x8 (default: measured on a GPU that is here, else 25)");
}

}  // namespace

Command make_plan_command(const CommandContext& context) {
  auto options = std::make_shared<Options>();
  options->model.log = &context.log;
  CommandOptions command(
      "plan", "Predict a model's memory and speed, here or on a machine that you describe.");
  command.example("moeflux plan --like qwen3-30b-a3b");
  command.example("moeflux plan --like qwen3-30b-a3b --ram 16G --drive 3.5");
  command.example("moeflux plan -m model.gguf --vram 12G -c 32768");
  command.example("moeflux plan --like qwen3.6-35b-a3b --type IQ3_S --vram 12G");
  command.group("Model");
  command
      .add("--like", options->like,
           "Published model by name, without its files (see moeflux synth --list)")
      .value("NAME")
      .not_empty();
  command
      .add("--type", options->type,
           "Type of a GGUF file of that model, like IQ3_S (default: affine groups of 4 bits)")
      .value("TYPE")
      .not_empty();
  command
      .add("--assume-bits", options->assume_bits,
           "Bits of a weight, where there is only a config.json: 2, 3, 4, 5, 6 or 8")
      .choices({"2", "3", "4", "5", "6", "8"})
      .in_help_all();
  add_machine_options(command, *options);
  command.group("Output");
  command.add("--json", options->json, "Print JSON");
  add_model_options(command, options->model);
  return {std::move(command), [options]() -> Status {
            MF_ASSIGN_OR_RETURN(const std::string text, plan(*options));
            return print_out(text);
          }};
}

}  // namespace moeflux
