#include "cli/model_options.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/cpu/cpu_device.h"
#include "base/format.h"
#include "base/units.h"
#include "cli/terminal.h"
#include "devices/open_device.h"
#include "engine/cache_types.h"
#include "engine/model_loader.h"
#include "engine/pack_gain.h"
#include "io/file.h"
#include "io/self_path.h"

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

CLI::Validator not_empty() {
  return {[](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); }, ""};
}

void add_model_folder_option(CLI::App& command, ModelOptions& options) {
  command
      .add_option(
          "-m,--model", options.model,
          "Model folder (config.json, *.safetensors, tokenizer.json) or GGUF file, any part "
          "of a split one (default: the embedded fable-20m)")
      ->check(not_empty());
}

namespace {

// How experts come from the drive, and which of them stay.
void add_streaming_options(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--cache-policy", options.cache_policy,
                  "Which experts stay in the cache: lfu (decayed use) or lru")
      ->check(CLI::IsMember({"lfu", "lru"}))
      ->capture_default_str();
  command
      .add_option("--expert-profile", options.expert_profile,
                  "File of experts' use in earlier runs, a hint for the cold cache; run adds its "
                  "own at the end and makes the file where there is none")
      ->check(not_empty());
  command
      .add_option("--lookahead", options.lookahead,
                  "Read experts before their router asks for them: auto (while it pays), on or off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  command
      .add_option("--expert-io", options.expert_io,
                  "How experts are read: auto, uring, direct or pread")
      ->check(CLI::IsMember({"auto", "uring", "direct", "pread"}))
      ->capture_default_str();
  command
      .add_option("--reader-threads", options.reader_threads,
                  "Threads that read experts, where --expert-io has threads")
      ->check(CLI::Range(1, kThreadsMax))
      ->capture_default_str();
  command.add_flag("--trust-experts", options.trust_experts,
                   "Do not compare the experts of a pack with their checksums on first use");
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  add_model_folder_option(command, options);
  command
      .add_option(
          "--device", options.device,
          "Where to compute: auto (a GPU if CUDA has one), cpu, cuda:0 (or another number), metal, "
          "reference, or emulator (GPU kernels on the CPU, slow)")
      ->capture_default_str();
  command.add_option("--cpu-isa", options.isa,
                     "portable: the same bits on every CPU, a little slower; or the kernels of an "
                     "instruction set: generic, avx2, avx-vnni, avx512, avx512-vnni, avx512-amx, "
                     "neon, neon-dotprod, neon-i8mm (default: the best)");
  command
      .add_option("--precision", options.precision,
                  "Activations against 4-bit and 8-bit weights on the CPU: f32, int8 (faster, less "
                  "exact), q16 (as GPUs), or auto: int8 where it is faster")
      ->check(CLI::IsMember({"auto", "f32", "int8", "q16"}))
      ->capture_default_str();
  command.add_option("-t,--threads", options.threads, "Compute threads (0: one per usable core)")
      ->check(CLI::Range(0, kThreadsMax))
      ->capture_default_str();
  command.add_flag("--pin", options.pin_threads,
                   "Keep each compute thread of the cpu device but the first on a core of its own");
  command.add_option(
      "-c,--ctx-size", options.context_size,
      "Context in tokens (default: what memory allows, at most the model's maximum)");
  command
      .add_option("--cache-type-k", options.cache_type_k,
                  "Keys of the context in memory: f16, f32, or q8_0, 8 bits and a scale for each "
                  "32 (-ctk; default: f16, f32 on the reference device)")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  command.add_option("--cache-type-v", options.cache_type_v, "The same of values (-ctv)")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  command
      .add_option("--expert-cache", options.expert_cache,
                  "Memory for streamed experts, like 64MiB or 4G (0: the least that can work; "
                  "default: what is free, less a reserve)")
      ->check(not_empty());
  command
      .add_option(
          "--near-cache", options.near_cache,
          "Memory of the device's own for experts, where it does not hold them all (0: none, "
          "they are read in the host's memory; default: auto, what is free)")
      ->check(not_empty());
  command
      .add_option(
          "--plan", options.plan,
          "Who computes experts on a GPU: resident (it holds them all), near (it reads over "
          "the bus those that it does not hold), helper (the CPU computes those), shared (both, "
          "at once), or auto, whichever is the fastest")
      ->check(CLI::IsMember({"auto", "resident", "near", "helper", "shared"}))
      ->capture_default_str();
  add_streaming_options(command, options);
}

Result<std::string> model_directory(const ModelOptions& options) {
  if (options.model.empty()) return find_embedded_model();
  MF_RETURN_IF_ERROR(check_model_folder(options.model));
  return options.model;
}

DeviceOptions device_options(const ModelOptions& options) {
  return {.name = options.device,
          .threads = options.threads,
          .pin_threads = options.pin_threads,
          .isa = options.isa,
          .precision = options.precision};
}

Result<std::unique_ptr<Device>> open_device(const ModelOptions& options) {
  return open_device(device_options(options));
}

Result<EngineOptions> engine_options(const ModelOptions& options) {
  EngineOptions engine;
  engine.context_length = options.context_size;
  engine.reader_threads = options.reader_threads;
  if (!options.cache_type_k.empty()) {
    MF_ASSIGN_OR_RETURN(engine.cache_type_k, parse_cache_type(options.cache_type_k));
  }
  if (!options.cache_type_v.empty()) {
    MF_ASSIGN_OR_RETURN(engine.cache_type_v, parse_cache_type(options.cache_type_v));
  }
  MF_ASSIGN_OR_RETURN(engine.expert_io, parse_io_mode(options.expert_io));
  const std::optional<CachePolicy> policy = parse_cache_policy(options.cache_policy);
  MF_CHECK(policy.has_value());  // the command line took no other
  engine.eviction.policy = *policy;
  engine.expert_profile = options.expert_profile;
  const std::optional<LookaheadMode> lookahead = parse_lookahead_mode(options.lookahead);
  MF_CHECK(lookahead.has_value());  // the command line took no other
  engine.lookahead = *lookahead;
  MF_ASSIGN_OR_RETURN(engine.plan, parse_plan_mode(options.plan));
  engine.check_experts = !options.trust_experts;
  if (options.near_cache != "auto") {
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
  if (const DeviceChoice choice = choose_device(device_options(options)); !choice.reason.empty()) {
    print_note(formatted("device auto: {}, {}", choice.name, choice.reason));
  }
  std::optional<ProgressBar> bar;
  // Without a terminal nobody looks, and the loader need not count the weights beforehand.
  if (stderr_is_terminal()) {
    engine.load_progress = [&bar](uint64_t done, uint64_t total) {
      if (!bar) bar.emplace("loading", total, ProgressUnit::kBytes);
      bar->update(done);
      return true;
    };
  }
  return open_model(directory,
                    {.device = device_options(options),
                     .engine = std::move(engine),
                     .on_warning = [](const std::string& line) { print_warning(line); }},
                    std::move(text));
}

Result<std::shared_ptr<OpenModel>> open_model(const ModelOptions& options) {
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options));
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options));
  return open_model(options, directory, std::move(engine));
}

void note_pack_gain(const OpenModel& model) {
  const std::string hint =
      pack_hint(model.directory, model.engine->experts(), model.engine->memory_plan().streams());
  if (!hint.empty()) print_note(hint);
}

void note_context(const ModelOptions& options, const OpenModel& model) {
  const int64_t context = model.engine->context_length();
  const int64_t longest = model.engine->spec().max_position_embeddings;
  if (options.context_size > 0 || context >= longest) return;
  print_note(formatted("context {} of {} tokens: what memory allows (-c)", context, longest));
}

void note_host_share(const OpenModel& model) {
  const std::string share = describe_host_share(model.engine->memory_plan());
  if (!share.empty()) print_note(formatted("{}: {}", model.device->name(), share));
}

void add_route_trace_option(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--route-trace", options.route_trace,
                  "Record which experts every token used, as CSV for moeflux replay")
      ->check(not_empty());
}

Result<std::unique_ptr<RouteTraceWriter>> record_routes(const ModelOptions& options,
                                                        OpenModel& model) {
  if (options.route_trace.empty()) return std::unique_ptr<RouteTraceWriter>();
  const std::string& directory = model.directory;
  Engine& engine = *model.engine;
  const std::string name = directory.substr(directory.find_last_of('/') + 1);
  RouteTraceHeader header{.model = name.empty() ? directory : name,
                          .arch = engine.spec().model_type,
                          .num_layers = static_cast<int32_t>(engine.spec().layers.size())};
  for (const LayerSpec& layer : engine.spec().layers) {
    header.top_k = std::max(header.top_k, static_cast<int32_t>(layer.moe.experts_per_token));
  }
  for (const ExpertLayer& layer : engine.experts().layers) {
    header.num_experts = std::max(header.num_experts, layer.num_experts);
    header.expert_bytes.push_back(layer.num_experts == 0 ? 0 : layer.bytes_per_expert());
  }
  if (header.num_experts == 0) {
    return make_error(ErrorCode::kUnsupported, "--route-trace: {} has no routed experts",
                      directory);
  }
  MF_ASSIGN_OR_RETURN(auto writer, RouteTraceWriter::create(options.route_trace, header));
  engine.observe_routes(writer.get());
  return writer;
}

Status finish_route_trace(Engine& engine, std::unique_ptr<RouteTraceWriter> writer) {
  if (writer == nullptr) return {};
  engine.observe_routes(nullptr);
  return writer->commit();
}

}  // namespace moeflux
