#include "cli/plan/planning.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/gpu/gpu_device.h"
#include "backend/trace/trace_device.h"
#include "base/units.h"
#include "cli/plan/host_report.h"
#include "engine/cache_types.h"
#include "io/host_memory.h"
#include "model/family/public_models.h"
#include "plan/dense_fit.h"
#include "plan/dry_run.h"
#include "plan/long_steps.h"
#include "plan/machine_probe.h"

namespace moeflux {
namespace {

constexpr int64_t kPromptTokens = 512;

Result<std::unique_ptr<LoadedModel>> open_description(const PlanOptions& options, Device& device,
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

Result<uint64_t> available_bytes(const PlanOptions& options) {
  if (options.memory.empty()) return query_host_memory().available_bytes;
  const Result<uint64_t> bytes = parse_bytes(options.memory);
  if (!bytes.ok()) return bytes.error().with_context("--ram");
  return *bytes;
}

// The memory of each GPU that --vram describes.
Result<std::vector<uint64_t>> described_memory(const PlanOptions& options) {
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
                           int64_t context, int64_t chunk, uint64_t available,
                           uint64_t listed_bytes = 0) {
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

// A step of so many tokens may be asked for; else experts may lengthen it.
int64_t longest_step(const LoadedModel& model, const EngineOptions& engine) {
  return engine.prefill_chunk > 0 ? 0 : step_tokens_max(model.spec(), engine);
}

// The plan of a machine whose memory is the host's, with the steps that it allows.
Status plan_host(LoadedModel& model, const Device& device, const EngineOptions& engine,
                 uint64_t available, HostReport& report) {
  const int64_t preferred = prefill_chunk_for(device, engine, report.context);
  MF_ASSIGN_OR_RETURN(report.plan,
                      plan_of(model, device, engine, report.context, preferred, available));
  MF_ASSIGN_OR_RETURN(
      report.step_tokens,
      lengthen_step(model, {.step_tokens = preferred,
                            .tokens_max = longest_step(model, engine),
                            .context_length = report.context,
                            .memory = report.plan,
                            .experts = {.expert_cache_bytes = engine.expert_cache_bytes}}));
  if (report.step_tokens == preferred) return {};
  MF_ASSIGN_OR_RETURN(
      report.plan, plan_of(model, device, engine, report.context, report.step_tokens, available));
  return {};
}

// Where the user asks for it, the plan is that of layers read from the drive for every step.
Status plan_stream(const LoadedModel& model, const Device& device, const EngineOptions& engine,
                   HostReport& report) {
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

// A processor's kernels and a device's matrix units multiply such a matrix with the same bits.
bool is_for_helper(const ClaimedModule& module, const Device& helper) {
  const int64_t cols = module.shape.back();
  const int64_t rows = module.shape.num_elements() / cols;
  return helper.multiplies_units(lay_out(format_in_memory(module.format, rows, cols), rows, cols));
}

// Divides dense weights between the memories of device and host, as the engine would. Gives the
// bytes that every token reads there: of a table that is looked up it reads a row.
FarDense split_dense(const LoadedModel& model, const EngineOptions& engine, uint64_t memory_bytes,
                     TierReport& report) {
  Result<DevicePlan> split = plan_device(model, {.free_bytes = memory_bytes,
                                                 .context_length = report.context,
                                                 .step_tokens = report.step_tokens,
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
  report.step_tokens = split->step_tokens;
  report.split = *std::move(split);
  return far;
}

// The same of several GPUs, with their experts. They give up what does not fit as one does.
Status split_cards(const LoadedModel& model, const EngineOptions& engine,
                   std::span<const uint64_t> memory, Device* here, TierReport& report) {
  std::vector<double> speeds;
  for (size_t i = 0; i < memory.size() && here != nullptr; ++i) {
    speeds.push_back(here->part(i).memory_bytes_per_second());
  }
  Result<SplitPlan> cards = plan_split(model, report.memory,
                                       {.free_bytes = {memory.begin(), memory.end()},
                                        .bytes_per_second = speeds,
                                        .context_length = report.context,
                                        .step_tokens = report.step_tokens,
                                        .step_tokens_max = longest_step(model, engine),
                                        .step_may_shrink = engine.prefill_chunk == 0,
                                        .experts = {.expert_cache_bytes = engine.expert_cache_bytes,
                                                    .near_cache_bytes = engine.near_cache_bytes}});
  if (!cards.ok() && cards.error().code() == ErrorCode::kResourceExhausted) {
    report.refusal = cards.error().message();
    return {};
  }
  if (!cards.ok()) return cards.error();
  report.experts = cards->experts;
  report.step_tokens = cards->device.step_tokens;
  report.cards = *std::move(cards);
  return {};
}

/// Free memory of the host and of a device, and the longest step there.
struct FreeMemory {
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
  bool copies_beside = false;
  int64_t longest = 0;
};

// Memory and experts of a device with memory of its own.
Status place_on_device(LoadedModel& model, const Device& stepping, const EngineOptions& engine,
                       const FreeMemory& free, TierReport& report) {
  const ExpertPlanRequest wanted{.expert_cache_bytes = engine.expert_cache_bytes,
                                 .near_cache_bytes = engine.near_cache_bytes};
  const uint64_t listed = listed_keys_bytes(model.spec(), model.cache_types, report.context);
  DeviceMemory device{.copies_beside = free.copies_beside};
  const auto place = [&]() -> Status {
    MF_ASSIGN_OR_RETURN(report.memory, plan_of(model, stepping, engine, report.context,
                                               report.step_tokens, free.host_bytes, listed));
    const uint64_t taken = report.memory.dense_bytes + report.memory.scratch_bytes;
    device.free_bytes = free.device_bytes - std::min(free.device_bytes, taken);
    device.taken_bytes = report.memory.state_bytes + device_reserve(free.device_bytes);
    report.experts = plan_experts(model.experts, report.memory, device, wanted);
    return {};
  };
  MF_RETURN_IF_ERROR(place());
  const int64_t preferred = report.step_tokens;
  MF_ASSIGN_OR_RETURN(report.step_tokens, lengthen_step(model, {.step_tokens = preferred,
                                                                .tokens_max = free.longest,
                                                                .context_length = report.context,
                                                                .memory = report.memory,
                                                                .devices = std::span(&device, 1),
                                                                .experts = wanted}));
  return report.step_tokens > preferred ? place() : Status();
}

// On a machine whose devices have memory of their own, `memory` of each.
Result<std::string> plan_tiers(const PlanOptions& options, const EngineOptions& engine,
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
  const int64_t preferred = prefill_chunk_for(*stepping, engine, report.context);
  report.step_tokens = preferred;
  FreeMemory free{.host_bytes = available,
                  .device_bytes = memory_bytes,
                  .copies_beside = here == nullptr || here->part(0).copies_beside()};
  if (memory.size() == 1) free.longest = longest_step(*model, engine);
  MF_RETURN_IF_ERROR(place_on_device(*model, *stepping, engine, free, report));
  FarDense far;
  if (memory.size() > 1) {
    MF_RETURN_IF_ERROR(split_cards(*model, engine, memory, here, report));
  } else if (report.memory.experts_bytes == 0 && report.taken_bytes() > memory_bytes) {
    far = split_dense(*model, engine, memory_bytes, report);
  }
  MF_ASSIGN_OR_RETURN(report.machine, find_tier_machine(options, *model, memory_bytes, here));
  std::vector<int64_t> prompts = {std::min(kPromptTokens, report.context)};
  for (const int64_t tokens : {std::min(preferred, report.step_tokens), report.step_tokens}) {
    if (tokens > prompts.back()) prompts.push_back(tokens);
  }
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

}  // namespace

Result<std::string> plan_on_machine(const PlanOptions& options, PlanSummary* summary) {
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
  HostReport report;
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                      open_description(options, *trace, report.model));
  MF_ASSIGN_OR_RETURN(model->cache_types, planned_cache_types(device, model->spec(), engine));
  report.loaded = model.get();
  MF_ASSIGN_OR_RETURN(report.context, planned_tokens_for(model->spec(), engine));
  MF_RETURN_IF_ERROR(plan_host(*model, *trace, engine, available, report));
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
  if (report.plan.streamed_bytes > 0) report.step_tokens = report.stream->step_tokens;
  const int64_t prompt = std::max(std::min(kPromptTokens, report.context), report.step_tokens);
  MF_ASSIGN_OR_RETURN(report.forecast, forecast(*model, report.plan, report.context, prompt,
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
  return options.json ? host_json(report) : host_text(report);
}

}  // namespace moeflux
