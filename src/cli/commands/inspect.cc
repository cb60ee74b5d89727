// moeflux inspect: what a model holds and what running it takes here. Reads headers, no weights; a
// folder with only config.json is described under an assumed storage format.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "engine/cache_types.h"
#include "io/host_memory.h"
#include "plan/device_plan.h"
#include "plan/dry_run.h"
#include "plan/long_steps.h"
#include "plan/model_sizes.h"

namespace moeflux {
namespace inspect_command {
namespace {

struct Options {
  ModelOptions model;
  bool json = false;
  int assume_bits = 4;
};

Json describe_architecture(const LoadedModel& model) {
  const ModelSpec& spec = model.spec();
  std::map<std::string, int64_t> mixers;
  for (const LayerSpec& layer : spec.layers) {
    ++mixers[std::string(layer.mixer->kind())];
  }
  Json json;
  json["model_type"] = spec.model_type;
  json["layers"] = spec.num_layers();
  for (const auto& [kind, count] : mixers) json["layers_" + kind] = count;
  json["hidden_size"] = spec.hidden_size;
  json["vocab_size"] = spec.vocab_size;
  json["max_position_embeddings"] = spec.max_position_embeddings;
  const MoeSpec& moe = last_moe(spec);
  json["experts_per_layer"] = moe.num_experts;
  json["experts_per_token"] = moe.experts_per_token;
  json["moe_intermediate_size"] = moe.moe_intermediate_size;
  json["shared_intermediate_size"] = moe.shared_intermediate_size;
  json["unread_config_keys"] = spec.unread_keys;
  return json;
}

/// Bytes of the other modules by what they are called in every layer, and their format.
Json dense_bytes_by_module(const LoadedModel& model) {
  std::map<std::string, uint64_t> bytes;
  for (const ClaimedModule& module : model.modules) {
    if (module.is_table) continue;
    const std::string name = module.name.substr(module.name.rfind('.') + 1);
    const int64_t cols = module.shape.back();
    bytes[formatted("{} {}", name, module.format.to_string())] +=
        weight_bytes(module.format, module.shape.num_elements() / cols, cols);
  }
  return bytes;
}

Json describe_checkpoint(const LoadedModel& model) {
  std::map<std::string, uint64_t> bytes_by_dtype;
  uint64_t total = 0;
  for (const auto& [name, entry] : model.index.entries()) {
    bytes_by_dtype[entry.type_name()] += entry.size_bytes;
    total += entry.size_bytes;
  }
  Json json;
  json["files"] = model.index.num_files();
  json["tensors"] = model.index.entries().size();
  json["tensor_bytes"] = total;
  json["bytes_by_dtype"] = bytes_by_dtype;
  json["bytes_by_module"] = dense_bytes_by_module(model);
  return json;
}

Json describe_experts(const LoadedModel& model, const ModelSizes& sizes) {
  Json json;
  json["count"] = sizes.experts;
  json["bytes"] = sizes.experts_bytes;
  json["bytes_per_expert"] = sizes.bytes_per_expert;
  const auto bytes_by_format = expert_bytes_by_format(model.experts);
  if (bytes_by_format.size() == 1) {
    json["format"] = bytes_by_format.begin()->first;
  } else if (bytes_by_format.size() > 1) {
    json["format"] = "by layer";
    json["bytes_per_expert_by_format"] = bytes_by_format;
  }
  for (const ExpertLayer& layer : model.experts.layers) {
    if (layer.extents_per_expert > 0) json["reads_per_expert"] = layer.extents_per_expert;
  }
  return json;
}

Json describe_sizes(const LoadedModel& model, const ModelSizes& sizes) {
  Json json;
  json["cache_type_k"] = cache_type_name(model.cache_types.keys);
  json["cache_type_v"] = cache_type_name(model.cache_types.values);
  json["parameters"] = sizes.parameters;
  json["active_parameters"] = sizes.active_parameters;
  json["total_bytes"] = sizes.total_bytes();
  json["experts_bytes"] = sizes.experts_bytes;
  json["dense_bytes"] = sizes.dense_bytes;
  if (sizes.table_bytes > 0) json["table_bytes_on_drive"] = sizes.table_bytes;
  json["active_bytes_per_token"] = sizes.active_bytes_per_token;
  json["active_experts_bytes_per_token"] = sizes.active_experts_bytes_per_token;
  json["kv_cache_bytes_per_token"] = sizes.kv_bytes_per_token;
  json["recurrent_state_bytes"] = sizes.recurrent_bytes;
  return json;
}

Json describe_plan(const MemoryPlan& plan, int64_t planned, int64_t step_tokens,
                   const DryRun& token) {
  Json json;
  json["context"] = plan.context_length;
  json["context_bytes"] = plan.context_bytes;
  json["tokens_set_aside"] = planned;
  json["available_bytes"] = plan.available_bytes;
  json["dense_bytes"] = plan.dense_bytes;
  json["state_bytes"] = plan.state_bytes;
  json["prompt_tokens_at_once"] = step_tokens;
  json["scratch_bytes"] = plan.scratch_bytes;
  if (plan.listed_bytes > 0) json["listed_key_bytes"] = plan.listed_bytes;
  json["reader_bytes"] = plan.reader_bytes;
  if (plan.table_rows_bytes > 0) json["table_rows_bytes"] = plan.table_rows_bytes;
  json["reserve_bytes"] = plan.reserve_bytes;
  json["expert_cache_bytes"] = plan.expert_cache_bytes;
  json["dense_bytes_read_per_token"] = token.weight_bytes;
  json["expert_bytes_read_per_token_cold"] = plan.cold_bytes_per_token;
  if (plan.on_device.total_bytes() > 0) {
    json["dense_bytes_in_host_memory"] = plan.dense_bytes - plan.on_device.dense_bytes;
    json["state_bytes_in_host_memory"] = plan.state_bytes - plan.on_device.state_bytes;
  }
  return json;
}

// The model takes these of memory on this machine, in steps of so many tokens.
struct Shares {
  DevicePlan on_device;  // empty where the device has no memory of its own, or is not here
  std::vector<DeviceMemory> devices;
  MemoryPlan memory;
};

Result<Shares> shares_of(const LoadedModel& model, const Result<std::unique_ptr<Device>>& opened,
                         const EngineOptions& engine, int64_t context, int64_t step_tokens) {
  Shares shares;
  const std::optional<uint64_t> free_bytes =
      opened.ok() ? (*opened)->free_bytes() : std::optional<uint64_t>();
  if (free_bytes) {
    Result<DevicePlan> plan = plan_device(model, {.free_bytes = *free_bytes,
                                                  .context_length = context,
                                                  .step_tokens = step_tokens,
                                                  .step_may_shrink = true,
                                                  .copies_beside = (*opened)->copies_beside(),
                                                  .near_cache_bytes = engine.near_cache_bytes});
    if (!plan.ok()) return plan.error().with_context(formatted("device {}", (*opened)->name()));
    shares.on_device = *std::move(plan);
    shares.devices =
        memory_beside(shares.on_device, {&*free_bytes, 1}, {}, (*opened)->part(0).copies_beside());
  }
  MF_ASSIGN_OR_RETURN(const DryRun prefill, dry_run(*model.model, step_tokens, 1));
  const uint64_t listed = shares.on_device.listed_bytes;
  shares.memory = plan_memory(model, {.available_bytes = query_host_memory().available_bytes,
                                      .context_length = context,
                                      .context_may_grow = engine.context_length == 0,
                                      .step_tokens_max = step_tokens,
                                      .scratch_bytes = prefill.scratch_bytes + listed,
                                      .listed_bytes = listed,
                                      .expert_cache_bytes = engine.expert_cache_bytes,
                                      .on_device = shares.on_device.share});
  return shares;
}

// "expert_cache_bytes 1073741824" reads as "expert cache        1.00 GiB".
std::string render(const Json& section) {
  std::string text;
  for (const auto& [key, value] : section.items()) {
    std::string label = key;
    std::string shown;
    if (value.is_number() && key.find("bytes") != std::string::npos) {
      shown = format_bytes(value.get<uint64_t>());
    } else if (value.is_object()) {
      for (const auto& [name, bytes] : value.items()) {
        shown += (shown.empty() ? "" : ", ") +
                 formatted("{} {}", name, format_bytes(bytes.get<uint64_t>()));
      }
    } else if (value.is_array()) {
      for (const Json& item : value) shown += (shown.empty() ? "" : ", ") + item.get<std::string>();
      if (shown.empty()) shown = "none";
    } else {
      shown = value.is_string() ? value.get<std::string>() : value.dump();
    }
    for (char& c : label) c = c == '_' ? ' ' : c;
    text += formatted("  {:<34}{}\n", label, shown);
  }
  return text;
}

Status run(const Options& options) {
  const std::unique_ptr<Device> device = make_trace_device();
  MF_ASSIGN_OR_RETURN(const EngineOptions engine, engine_options(options.model));
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                      describe_model(directory, *device, {.bits = options.assume_bits}));
  const Result<std::unique_ptr<Device>> opened = open_device(options.model);
  MF_ASSIGN_OR_RETURN(model->cache_types, planned_cache_types(opened, model->spec(), engine));
  MF_ASSIGN_OR_RETURN(const int64_t planned, planned_tokens_for(model->spec(), engine));
  const Device& stepping = opened.ok() ? **opened : *device;
  int64_t chunk = prefill_chunk_for(stepping, engine, planned);
  MF_ASSIGN_OR_RETURN(Shares shares, shares_of(*model, opened, engine, planned, chunk));
  if (engine.prefill_chunk == 0) {
    MF_ASSIGN_OR_RETURN(
        chunk, lengthen_step(*model, {.step_tokens = chunk,
                                      .tokens_max = step_tokens_max(model->spec(), engine),
                                      .context_length = planned,
                                      .memory = shares.memory,
                                      .devices = shares.devices,
                                      .experts = {.expert_cache_bytes = engine.expert_cache_bytes,
                                                  .near_cache_bytes = engine.near_cache_bytes}}));
    MF_ASSIGN_OR_RETURN(shares, shares_of(*model, opened, engine, planned, chunk));
  }
  const MemoryPlan& plan = shares.memory;
  MF_ASSIGN_OR_RETURN(const DryRun token, dry_run(*model->model, 1, 1));
  const ModelSizes sizes = measure_model(*model);
  Json report;
  report["model"] = directory;
  if (!model->assumed_weights.empty()) report["weights"] = model->assumed_weights;
  report["architecture"] = describe_architecture(*model);
  if (model->assumed_weights.empty()) report["checkpoint"] = describe_checkpoint(*model);
  report["experts"] = describe_experts(*model, sizes);
  report["sizes"] = describe_sizes(*model, sizes);
  report["memory_plan"] = describe_plan(plan, planned, chunk, token);
  if (options.json) {
    return print_out(report.dump(2) + "\n");
  }
  std::string text = directory + "\n";
  for (const auto& [name, section] : report.items()) {
    if (name == "weights") text += formatted("weights {}\n", section.get<std::string>());
    if (!section.is_object()) continue;
    std::string title = name;
    for (char& c : title) c = c == '_' ? ' ' : c;
    text += title + "\n" + render(section);
  }
  return print_out(text);
}

}  // namespace
}  // namespace inspect_command

Command make_inspect_command(const CommandContext& context) {
  auto options = std::make_shared<inspect_command::Options>();
  options->model.log = &context.log;
  CommandOptions command(
      "inspect", "Show a model's architecture, sizes, and the memory plan for this machine.");
  command.example("moeflux inspect -m FOLDER");
  command.example("moeflux inspect -m model.gguf --json");
  command.example("moeflux inspect -m FOLDER -c 32768 --device cpu");
  command.group("Output");
  command.add("--json", options->json, "Print JSON");
  add_model_options(command, options->model);
  command.group("Model");
  command
      .add("--assume-bits", options->assume_bits,
           "Bits of a weight, where the folder has only a config.json: 2, 3, 4, 5, 6 or 8")
      .choices({"2", "3", "4", "5", "6", "8"});
  return {std::move(command), [options] { return inspect_command::run(*options); }};
}

}  // namespace moeflux
