// The options every command shares that opens a model: which folder, device, threads, context and
// cache.
#pragma once

#include <memory>
#include <string>

#include "backend/device.h"
#include "base/result.h"
#include "chat/open_model.h"
#include "cli/cli11.h"
#include "devices/open_device.h"
#include "engine/engine.h"

namespace moeflux {

struct ModelOptions {
  std::string model;  // empty: the embedded fable-20m
  std::string device = "auto";
  std::string isa;                 // forces the CPU kernels' instruction set
  std::string precision = "auto";  // "f32", "int8"; of the cpu device
  int threads = 0;                 // 0: one per usable core
  bool pin_threads = false;        // of the cpu device
  int64_t context_size = 0;        // 0: what memory allows
  std::string cache_type_k;        // "f32", "f16", "q8_0"; empty: as the device prefers
  std::string cache_type_v;
  std::string plan = "auto";
  std::string near_cache;    // empty: what is free of the device's memory
  std::string expert_cache;  // empty: what is free
  std::string expert_io = "auto";
  int reader_threads = 8;
  std::string cache_policy = "lfu";
  std::string expert_profile;  // file of earlier runs' uses; empty: none
  std::string lookahead = "auto";
  std::string route_trace;     // file to record routes to; empty: none
  bool trust_experts = false;  // of a pack: no checksums
};

/// A check that refuses "": an unset shell variable must not mean the default.
CLI::Validator not_empty();

/// -m only.
void add_model_folder_option(CLI::App& command, ModelOptions& options);
/// -m, --device, -t, -c, --expert-cache and their like.
void add_model_options(CLI::App& command, ModelOptions& options);

/// The folder to open: what was given, or the embedded model from the source tree or the install
/// prefix.
Result<std::string> model_directory(const ModelOptions& options);
DeviceOptions device_options(const ModelOptions& options);
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

/// Notes on standard error the context that nobody asked for, where it is not the model's maximum.
void note_context(const ModelOptions& options, const OpenModel& model);
/// Notes on standard error what the host's memory keeps of weights and state, where a device with
/// memory of its own has no room for all of them.
void note_host_share(const OpenModel& model);
/// Notes on standard error that the model would be faster packed, and how much, where that is so.
void note_pack_gain(const OpenModel& model);

/// --route-trace, for commands that run a model.
void add_route_trace_option(CLI::App& command, ModelOptions& options);
/// Records the engine's routes from now on, as --route-trace says; null when it does not. The
/// writer must be taken away or committed before the engine runs again without it.
Result<std::unique_ptr<RouteTraceWriter>> record_routes(const ModelOptions& options,
                                                        OpenModel& model);
/// Completes the file and takes the writer away. Nothing happens without one.
Status finish_route_trace(Engine& engine, std::unique_ptr<RouteTraceWriter> writer);

}  // namespace moeflux
