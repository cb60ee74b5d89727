#include "cli/model_options.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "base/format.h"
#include "base/units.h"
#include "chat/tuning.h"
#include "cli/hub_models.h"
#include "cli/terminal.h"
#include "convert/pack/pack_gain.h"
#include "devices/open_device.h"
#include "engine/cache_types.h"
#include "io/file.h"
#include "io/self_path.h"
#include "load/model_loader.h"

namespace moeflux {
namespace {

constexpr std::string_view kEmbeddedModel = "models/fable-20m";
constexpr int kThreadsMax = 1024;

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash == 0 ? "" : path.substr(0, slash);
}

// PREFIX/bin/moeflux finds PREFIX/share/moeflux/models; a build inside the source tree finds the
// tree's models in one of the folders above it.
Result<std::string> find_embedded_model() {
  const std::string start = executable_directory();
  const std::string installed = formatted("{}/share/moeflux/{}", parent_of(start), kEmbeddedModel);
  if (path_exists(installed + "/config.json")) return installed;
  for (std::string folder = start; !folder.empty(); folder = parent_of(folder)) {
    std::string candidate = formatted("{}/{}", folder, kEmbeddedModel);
    if (path_exists(candidate + "/config.json")) return candidate;
  }
  return make_error(ErrorCode::kNotFound,
                    "the embedded model {} is neither in {} nor above {}; name a model with -m",
                    kEmbeddedModel, installed, start);
}

/// None of an option that was not given.
Result<std::optional<uint64_t>> bytes_of(std::string_view option, const std::string& text) {
  if (text.empty()) return std::optional<uint64_t>();
  const Result<uint64_t> bytes = parse_bytes(text);
  if (!bytes.ok()) return bytes.error().with_context(std::string(option));
  return std::optional<uint64_t>(*bytes);
}

}  // namespace

void add_model_folder_option(CommandOptions& command, ModelOptions& options,
                             std::string_view without) {
  command.group("Model");
  const Option& model = command
                            .add("-m,--model", options.model,
                                 formatted("Model folder, or GGUF file (default: {})", without))
                            .value("PATH")
                            .not_empty();
  add_hub_option(command, options, model);
}

void add_hub_option(CommandOptions& command, ModelOptions& options, const Option& model) {
  command
      .add("-hf,-hfr,--hf-repo", options.hub_name,
           "Model of the hub, ORG/NAME[:QUANT], downloaded unless it is here")
      .value("NAME")
      .not_empty()
      .excludes(model);
}

namespace {

TuningTarget tuning_target(ModelOptions& options) {
  return {options.device, options.engine, options.drafts};
}

// An option of earlier versions that is a key of --tune now.
void add_tuned(CommandOptions& command, ModelOptions& options, std::string_view key) {
  const auto set = [&options, key](std::span<const std::string> values) {
    return set_tuning(key, values.back(), tuning_target(options));
  };
  // llama.cpp's names.
  const std::string_view other = key == "draft-model" ? "-md,--model-draft,--spec-draft-model" : "";
  command
      .add_call(formatted("{}{}--{}", other, other.empty() ? "" : ",", key), "VALUE", set,
                formatted("See --tune {}=", key))
      .hidden();
}
void add_tuned_switch(CommandOptions& command, ModelOptions& options, std::string_view key) {
  const auto set = [&options, key](bool on) {
    return set_tuning(key, on ? "on" : "off", tuning_target(options));
  };
  command.add_flag_call(formatted("--{}", key), set, formatted("See --tune {}=on", key)).hidden();
}

void add_tuning_options(CommandOptions& command, ModelOptions& options) {
  command
      .add("--cpu-isa", options.device.isa,
           "CPU kernels: portable (the same bits on every CPU, a little slower), or those of an "
           "instruction set: generic, avx2, avx-vnni, avx512, avx512-vnni, avx512-amx, neon, "
           "neon-dotprod, neon-i8mm (default: the fastest)")
      .value("NAME")
      .in_help_all();
  command
      .add("--precision", options.device.precision,
           "Activations against 4-bit and 8-bit weights on the CPU: f32, int8 (faster, less "
           "exact), q16 (as on GPUs), or auto, int8 where it is faster")
      .value("NAME")
      .choices({"auto", "f32", "int8", "q16"})
      .in_help_all();
  const auto set = [&options](std::span<const std::string> values) -> Status {
    for (const std::string& text : values) {
      MF_RETURN_IF_ERROR(apply_tuning(text, tuning_target(options)));
    }
    return {};
  };
  command.group("Other");
  command.add_call("--tune", "KEY=VALUE,...", set, "Settings for measurements; help lists them");
  HelpList keys = {.title = "Keys of --tune (each also as an option, --KEY VALUE; on: --KEY alone)",
                   .option = "--tune",
                   .rows = {}};
  for (const TuningKey& key : tuning_keys()) {
    keys.rows.emplace_back(formatted("{}=", key.name),
                           formatted("{} ({}; default: {})", key.help, key.values, key.without));
    if (command.find(formatted("--{}", key.name)) != nullptr) continue;
    if (key.values == "on, off") {
      add_tuned_switch(command, options, key.name);
    } else if (key.name != "near-cache" && key.name != "plan") {
      add_tuned(command, options, key.name);
    }
  }
  command.list(std::move(keys));
}

void add_memory_options(CommandOptions& command, ModelOptions& options) {
  command
      .add("-c,--ctx-size", options.engine.context_length,
           "Context in tokens (default: what memory allows)")
      .default_text("");
  command.add_size("--expert-cache", options.expert_cache,
                   "Memory for streamed experts, like 4G; 0: least (default: what is free)");
  command.group("Memory");
  command
      .add("-ctk,--cache-type-k", options.cache_type_k,
           "Type of keys in the KV cache: f16, f32 or q8_0 (default: f16; f32 on the reference "
           "device)")
      .value("TYPE")
      .choices({"f32", "f16", "q8_0"})
      .in_help_all();
  command
      .add("-ctv,--cache-type-v", options.cache_type_v, "Type of values in the KV cache (as -ctk)")
      .value("TYPE")
      .choices({"f32", "f16", "q8_0"})
      .in_help_all();
  command
      .add("--stream-dense", options.engine.stream_dense,
           "Read the layers of a dense model that do not fit memory, or --expert-cache, from "
           "the drive for every step; says first how fast that can be")
      .in_help_all();
  command
      .add("--expert-profile", options.engine.expert_profile,
           "File with the experts' use in earlier runs, which warms a cold cache; run updates it, "
           "and makes it where there is none")
      .value("FILE")
      .not_empty()
      .in_help_all();
}

}  // namespace

void add_engine_options(CommandOptions& command, ModelOptions& options) {
  command.group("Model");
  command
      .add("--device", options.device.name,
           "auto (a GPU if there is one), cpu, cuda:N, cuda:all; again: several GPUs")
      .joined("+")
      .value("NAME")
      .default_text("");
  const auto set_threads = [&threads = options.device.threads](std::span<const std::string> given) {
    threads = 0;
    return given.back() == "auto" ? Status() : parse_number(given.back(), threads);
  };
  command
      .add_call("-t,--threads", "N", set_threads,
                "Compute threads; auto: measured beyond 8 cores (default: auto)")
      .takes_last()
      .range(0, kThreadsMax);
  add_memory_options(command, options);
  command.group("Tuning");
  add_tuning_options(command, options);
}

void add_model_options(CommandOptions& command, ModelOptions& options, std::string_view without) {
  add_model_folder_option(command, options, without);
  add_engine_options(command, options);
  command.group("Memory");
  command
      .add("--near-cache", options.near_cache,
           "GPU memory for experts, where it cannot hold them all; 0: none, the GPU reads them "
           "from host memory (default: what is free)")
      .value("SIZE")
      .not_empty()
      .check(near_cache_problem)
      .in_help_all();
  command
      .add("--plan", options.plan,
           "Where experts are computed with a GPU: resident (it holds them all), near (it reads "
           "the others over the bus), helper (the CPU computes the others), shared (both), or "
           "auto, the fastest")
      .value("NAME")
      .choices({"auto", "resident", "near", "helper", "shared"})
      .in_help_all();
}

std::string near_cache_problem(const std::string& text) {
  return text == "auto" ? "" : size_problem(text);
}

Result<std::string> model_directory(const ModelOptions& options) {
  if (options.model.empty() && !options.hub_name.empty()) {
    return find_or_pull_model(options.hub_name, *options.log);
  }
  if (options.model.empty()) return find_embedded_model();
  MF_RETURN_IF_ERROR(check_model_folder(options.model));
  return options.model;
}

Result<std::unique_ptr<Device>> open_device(const ModelOptions& options) {
  return open_device(options.device);
}

Result<EngineOptions> engine_options(const ModelOptions& options) {
  EngineOptions engine = options.engine;
  if (!options.cache_type_k.empty()) {
    MF_ASSIGN_OR_RETURN(engine.cache_type_k, parse_cache_type(options.cache_type_k));
  }
  if (!options.cache_type_v.empty()) {
    MF_ASSIGN_OR_RETURN(engine.cache_type_v, parse_cache_type(options.cache_type_v));
  }
  if (options.plan != "auto") {
    MF_ASSIGN_OR_RETURN(engine.plan, parse_plan_mode(options.plan));
  }
  if (!options.near_cache.empty() && options.near_cache != "auto") {
    MF_ASSIGN_OR_RETURN(engine.near_cache_bytes, bytes_of("--near-cache", options.near_cache));
  }
  MF_ASSIGN_OR_RETURN(engine.expert_cache_bytes, bytes_of("--expert-cache", options.expert_cache));
  return engine;
}

Result<CacheTypes> planned_cache_types(const Result<std::unique_ptr<Device>>& device,
                                       const ModelSpec& model, const EngineOptions& engine) {
  if (device.ok()) return cache_types_for(**device, model, engine);
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Device> cpu, make_cpu_device({.threads = 1}));
  return cache_types_for(*cpu, model, engine);
}

Result<std::shared_ptr<OpenModel>> open_model(const ModelOptions& options,
                                              const std::string& directory, EngineOptions engine,
                                              ModelText text) {
  if (const DeviceChoice choice = choose_device(options.device); !choice.reason.empty()) {
    options.log->note(formatted("device auto: {}, {}", choice.name, choice.reason));
  }
  engine.on_forecast = [&options](const std::string& line) { options.log->note(line); };
  std::optional<ProgressBar> bar;
  // Without a terminal nobody looks, and the loader need not count the weights beforehand.
  if (stderr_is_terminal() && !engine.load_progress) {
    // Told before each tensor is read; experts may be read behind the last, which nobody counts.
    engine.load_progress = [&bar, before = uint64_t{0}](uint64_t done, uint64_t total) mutable {
      if (!bar) bar.emplace("loading", total, ProgressUnit::kBytes);
      bar->update(before);
      before = done;
      if (done == total) bar->show_rest("the last weights, and experts");
      return true;
    };
  }
  return open_model(
      directory,
      {.device = options.device,
       .engine = std::move(engine),
       .on_warning = [&options](const std::string& line) { options.log->warning(line); },
       .drafts = options.drafts},
      std::move(text));
}

Result<std::shared_ptr<OpenModel>> open_model(const ModelOptions& options) {
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options));
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options));
  return open_model(options, directory, std::move(engine));
}

Option& add_pooling_option(CommandOptions& command, std::string& pooling) {
  return command
      .add("--pooling", pooling,
           "Hidden states that make an embedding: last, mean or cls (default: as the model's files "
           "say, or last)")
      .value("KIND")
      .choices({"last", "mean", "cls"})
      .default_text("");
}

void set_pooling(const std::string& pooling, ModelText& text) {
  const auto kind = find_pooling(pooling);
  if (!kind) return;
  if (!text.embedding.ok()) text.embedding = EmbeddingSpec{};
  text.embedding->pooling = *kind;
}

void note_pack_gain(const ModelOptions& options, const OpenModel& model) {
  const std::string hint = pack_hint(model.directory, model.engine->loaded().experts,
                                     model.engine->memory_plan().streams());
  if (!hint.empty()) options.log->note(hint);
}

void note_context(const ModelOptions& options, const OpenModel& model) {
  const int64_t context = model.engine->memory_plan().context_length;
  const int64_t longest = model.engine->spec().max_position_embeddings;
  if (options.engine.context_length > 0 || context >= longest) return;
  options.log->note(
      formatted("context {} of {} tokens: what memory allows (-c)", context, longest));
}

void note_host_share(const ModelOptions& options, const OpenModel& model) {
  const std::string share = describe_host_share(model.engine->memory_plan());
  if (!share.empty()) options.log->note(formatted("{}: {}", model.device->name(), share));
}

void add_route_trace_option(CommandOptions& command, ModelOptions& options) {
  command.group("Tuning");
  command
      .add("--route-trace", options.route_trace,
           "CSV file to write with the experts of every token, for moeflux replay")
      .value("FILE")
      .not_empty()
      .in_help_all();
}

Result<std::unique_ptr<RouteTraceWriter>> record_routes(const ModelOptions& options,
                                                        OpenModel& model) {
  if (options.route_trace.empty()) return std::unique_ptr<RouteTraceWriter>();
  const std::string& directory = model.directory;
  Engine& engine = *model.engine;
  const std::string name = directory.substr(directory.find_last_of('/') + 1);
  const RouteTraceHeader header = engine.loaded().trace_header(name.empty() ? directory : name);
  if (header.num_experts == 0) {
    return make_error(ErrorCode::kUnsupported, "--route-trace: {} has no routed experts",
                      directory);
  }
  MF_ASSIGN_OR_RETURN(auto writer, RouteTraceWriter::create(options.route_trace, header));
  engine.experts().routes().observe(writer.get());
  return writer;
}

Status finish_route_trace(Engine& engine, std::unique_ptr<RouteTraceWriter> writer) {
  if (writer == nullptr) return {};
  engine.experts().routes().observe(nullptr);
  return writer->commit();
}

}  // namespace moeflux
