// The options every command shares that opens a model: which folder, device, threads, context and
// cache.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend/device.h"
#include "base/result.h"
#include "chat/drafts/draft_options.h"
#include "chat/open_model.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "devices/open_device.h"
#include "engine/engine.h"

namespace moeflux {

struct ModelOptions {
  std::string model;     // empty: `hub_name`, or the embedded fable-20m
  std::string hub_name;  // ORG/NAME[:QUANT]; empty: none
  DeviceOptions device = {.name = "auto"};
  EngineOptions engine;  // but what follows, which engine_options() adds
  DraftOptions drafts;
  std::string near_cache;    // empty: what is free of the device's memory
  std::string expert_cache;  // empty: what is free
  std::string cache_type_k;  // "f32", "f16", "q8_0"; empty: as the device prefers
  std::string cache_type_v;
  std::string plan = "auto";
  std::string route_trace;  // file to record routes to; empty: none
  const Log* log = &kDefaultLog;
};

/// The fault of a --near-cache; empty if there is none.
std::string near_cache_problem(const std::string& text);

/// -hf, beside a -m of the command's own.
void add_hub_option(CommandOptions& command, ModelOptions& options, const Option& model);
/// A command without -m takes this, as its help says.
inline constexpr std::string_view kEmbedded = "the embedded fable-20m";

/// -m and -hf only.
void add_model_folder_option(CommandOptions& command, ModelOptions& options,
                             std::string_view without = kEmbedded);
/// -m, --device, -t, -c, --expert-cache and their like.
void add_model_options(CommandOptions& command, ModelOptions& options,
                       std::string_view without = kEmbedded);
/// The same without -m, --near-cache and --plan, of which some commands take several.
void add_engine_options(CommandOptions& command, ModelOptions& options);

/// The folder to open: what was given, what the hub's name means, which is downloaded when it is
/// absent, or the embedded model from the source tree or the install prefix.
Result<std::string> model_directory(const ModelOptions& options);
Result<std::unique_ptr<Device>> open_device(const ModelOptions& options);
/// For one sequence at a time, as most commands have it.
Result<EngineOptions> engine_options(const ModelOptions& options);
/// cache_types_for() the device that open_device() gave; those of a CPU where it gave none, as
/// plans need no device.
Result<CacheTypes> planned_cache_types(const Result<std::unique_ptr<Device>>& device,
                                       const ModelSpec& model, const EngineOptions& engine);

/// A model in `directory`, with a warning of unknown keys of config.json first and, on a terminal,
/// a bar while weights are read. `engine` is engine_options() or what a command made of it; `text`
/// is for commands that generate.
Result<std::shared_ptr<OpenModel>> open_model(const ModelOptions& options,
                                              const std::string& directory, EngineOptions engine,
                                              ModelText text = {});
/// The same of model_directory() and engine_options().
Result<std::shared_ptr<OpenModel>> open_model(const ModelOptions& options);

Option& add_pooling_option(CommandOptions& command, std::string& pooling);
/// In place of what the model's files say; empty: theirs.
void set_pooling(const std::string& pooling, ModelText& text);

/// Notes on standard error the context that nobody asked for, where it is not the model's maximum.
void note_context(const ModelOptions& options, const OpenModel& model);
/// Notes on standard error what the host's memory keeps of weights and state, where a device with
/// memory of its own has no room for all of them.
void note_host_share(const ModelOptions& options, const OpenModel& model);
/// Notes on standard error that the model would be faster packed, and how much, where that is so.
void note_pack_gain(const ModelOptions& options, const OpenModel& model);

void add_route_trace_option(CommandOptions& command, ModelOptions& options);
/// Records the engine's routes from now on, as --route-trace says; null when it does not. The
/// writer must be taken away or committed before the engine runs again without it.
Result<std::unique_ptr<RouteTraceWriter>> record_routes(const ModelOptions& options,
                                                        OpenModel& model);
/// Completes the file and takes the writer away. Nothing happens without one.
Status finish_route_trace(Engine& engine, std::unique_ptr<RouteTraceWriter> writer);

}  // namespace moeflux
