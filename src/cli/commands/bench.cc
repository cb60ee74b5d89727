// moeflux bench: tokens per second of prompts and of single tokens, held against what the memory
// allows.
#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "chat/model_text.h"
#include "cli/bench_cells.h"
#include "cli/bench_report.h"
#include "cli/commands/command.h"
#include "cli/forced_report.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "experts/routes/forced_routes.h"
#include "io/drive_probe.h"
#include "io/host_memory.h"
#include "plan/memory_bandwidth.h"
#include "plan/model_sizes.h"

namespace moeflux {
namespace bench_command {
namespace {

struct Options {
  ModelOptions model;
  std::vector<std::string> models;
  std::vector<int64_t> prompts = {512};
  std::vector<int64_t> generations = {128};
  std::vector<int64_t> depths = {0};
  std::vector<int64_t> parallel;
  int repetitions = 5;
  bool no_warmup = false;
  int64_t batch = 0;
  uint64_t seed = 0;
  std::string file;
  std::vector<std::string> forced_texts;
  std::string output = "md";
  std::vector<std::string> near_caches = {""};
  std::vector<std::string> plans = {"auto"};
  std::string routes;
  std::shared_ptr<const RouteTrace> forced_routes;  // of --routes
  std::optional<double> memory_gb;
  double probe_seconds = 1.0;
};

// Prompts, then generations of each number of sequences, each at every depth; zeros ask for
// nothing.
std::vector<BenchmarkTest> tests_of(const Options& options) {
  std::vector<BenchmarkTest> tests;
  for (const int64_t depth : options.depths) {
    for (const int64_t n : options.prompts) {
      if (n > 0) tests.push_back({.n_prompt = n, .n_depth = depth});
    }
    for (const int64_t n : options.generations) {
      if (n == 0) continue;
      if (options.parallel.empty()) tests.push_back({.n_gen = n, .n_depth = depth});
      for (const int64_t sequences : options.parallel) {
        tests.push_back({.n_gen = n, .n_depth = depth, .n_parallel = sequences});
      }
    }
  }
  return tests;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), length};
}

// The part of a result that describes the model.
Result<BenchResult> describe(const LoadedModel& model, const std::string& directory) {
  BenchResult result;
  result.model_filename = directory;
  result.model_type = model.spec().model_type;
  for (const ExpertLayer& layer : model.experts.layers) {
    if (layer.num_experts == 0) continue;
    result.model_type += " " + layer.gate.format.to_string();
    break;
  }
  for (const auto& [name, entry] : model.index.entries()) result.model_size += entry.size_bytes;
  result.model_n_params = measure_model(model).parameters;
  return result;
}

Result<std::vector<TokenId>> text_tokens(const Options& options, const std::string& directory) {
  if (options.file.empty()) return std::vector<TokenId>();
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_input(options.file));
  MF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(directory));
  MF_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, tokenizer.encode(text));
  if (tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: the text has no tokens", options.file);
  }
  return tokens;
}

Result<EngineOptions> engine_options_for(const Options& options, const BenchCell& cell,
                                         std::span<const BenchmarkTest> tests) {
  ModelOptions model = options.model;
  model.near_cache = cell.near_cache;
  model.plan = plan_name(cell.opening_plan());
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(model));
  if (options.batch > 0) engine.prefill_chunk = options.batch;
  engine.forced_routes = options.forced_routes.get();
  int64_t longest = 0;
  for (const BenchmarkTest& test : tests) {
    longest = std::max(longest, test.context());
    engine.step_sequences = std::max(engine.step_sequences, test.sequences());
  }
  if (engine.context_length == 0) engine.context_length = longest;
  return engine;
}

// How the trace fits this model, for the reader of the results.
void note_forced_routes(const Log& log, const RouteTrace& trace, const Engine& engine) {
  int64_t layers = 0;
  int64_t experts = 0;
  int64_t top_k = 0;
  for (const LayerSpec& layer : engine.spec().layers) {
    layers += layer.moe.num_experts > 0 ? 1 : 0;
    experts = std::max(experts, layer.moe.num_experts);
    top_k = std::max(top_k, layer.moe.experts_per_token);
  }
  log.note(describe_forced_routes(trace, layers, experts, top_k));
}

// The drive's rate in experts' sizes, with nothing else going on; 0 when the tests had no need of
// it. Random places of one layer, past the page cache.
Result<double> probe_experts_drive(const LoadedModel& model, const ExpertStats& experts,
                                   double seconds) {
  if (experts.bytes_read == 0) return 0.0;
  for (const ExpertLayer& layer : model.experts.layers) {
    if (layer.num_experts == 0) continue;
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<AsyncReader> reader,
                        make_reader(IoMode::kAuto, {.drop_cache = false}));
    MF_ASSIGN_OR_RETURN(
        const DriveProbe probe,
        probe_drive(
            *reader, model.index.file(layer.extents.front().file),
            {.blob_bytes = layer.bytes_per_expert(), .depths = {4, 8, 16}, .seconds = seconds}));
    return probe.bytes_per_second;
  }
  return 0.0;
}

/// One model that is being measured.
struct Bench {
  const Options& options;
  std::span<const BenchmarkTest> tests;
  std::string directory;
  std::unique_ptr<LoadedModel> model;  // without weights
  std::vector<TokenId> text;
  std::shared_ptr<OpenModel> open;
  std::optional<uint64_t> near_cache_bytes;  // of the cell at hand
};

// The first cell opens the model, the others place its experts anew.
Status place_experts(Bench& bench, const BenchCell& cell) {
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options_for(bench.options, cell, bench.tests));
  bench.near_cache_bytes = engine.near_cache_bytes;
  if (bench.open != nullptr) {
    MF_ASSIGN_OR_RETURN(
        bench.open->engine,
        Engine::replan(std::move(bench.open->engine),
                       {.near_cache_bytes = engine.near_cache_bytes, .plan = engine.plan}));
    return {};
  }
  MF_ASSIGN_OR_RETURN(bench.open,
                      open_model(bench.options.model, bench.directory, std::move(engine)));
  note_host_share(bench.options.model, *bench.open);
  note_pack_gain(bench.options.model, *bench.open);
  bench.model->cache_types = bench.open->engine->loaded().cache_types;
  const RouteTrace* routes = bench.options.forced_routes.get();
  if (routes != nullptr) note_forced_routes(*bench.options.model.log, *routes, *bench.open->engine);
  return {};
}

// Plans that this machine and model can have; the only one has to be possible.
Result<std::vector<PlanMode>> possible_plans(Engine& engine, const BenchCell& cell,
                                             const Log& log) {
  std::vector<PlanMode> plans;
  for (const PlanMode plan : cell.plans) {
    const Status possible = engine.set_plan(plan);
    if (possible.ok()) {
      plans.push_back(plan);
    } else if (cell.plans.size() == 1) {
      return possible.error();
    } else {
      log.note(formatted("left out: {}", possible.error().message()));
    }
  }
  return plans;
}

Result<BenchResult> result_of(const Bench& bench, const BenchmarkTest& test) {
  const Engine& engine = *bench.open->engine;
  MF_ASSIGN_OR_RETURN(BenchResult result, describe(*bench.model, bench.directory));
  result.backend = std::string(bench.open->device->name());
  result.device = bench.open->device_description;
  MF_ASSIGN_OR_RETURN(result.precision, activation_precision(bench.options.model.device));
  result.cache_types = engine.loaded().cache_types;
  const int threads = bench.options.model.device.threads;
  result.threads = threads > 0 ? threads : default_cpu_threads();
  result.batch = engine.prefill_chunk();
  result.test = test;
  result.test_time = utc_now();
  result.expert_cache_bytes = engine.experts().capacity_bytes();
  return result;
}

// Where the experts of a run's traffic come from.
std::string routes_of(const Bench& bench, const BenchmarkRun& run) {
  if (bench.options.forced_routes != nullptr) return "recorded";
  return run.experts.hits + run.experts.misses > 0 ? "counted" : "uniform";
}

Status bench_cell(Bench& bench, const BenchCell& cell, std::vector<BenchResult>& results) {
  MF_RETURN_IF_ERROR(place_experts(bench, cell));
  Engine& engine = *bench.open->engine;
  MF_ASSIGN_OR_RETURN(const std::vector<PlanMode> plans,
                      possible_plans(engine, cell, *bench.options.model.log));
  const bool has_plans = bench.open->device->free_bytes().has_value();
  MF_ASSIGN_OR_RETURN(auto routes, record_routes(bench.options.model, *bench.open));
  std::unique_ptr<Sequence> past;
  for (const BenchmarkTest& test : bench.tests) {
    MF_ASSIGN_OR_RETURN(BenchResult result, result_of(bench, test));
    BenchmarkOptions benchmark{.repetitions = bench.options.repetitions,
                               .warm_ups = bench.options.no_warmup ? 0 : 1,
                               .seed = bench.options.seed,
                               .text = bench.text};
    const auto rounds = static_cast<size_t>(benchmark.repetitions + benchmark.warm_ups);
    ProgressBar progress(result.name(), rounds * plans.size());
    progress.update(0);
    benchmark.progress = [&](int n) { progress.update(static_cast<uint64_t>(n)); };
    MF_ASSIGN_OR_RETURN(std::vector<BenchmarkRun> runs,
                        run_benchmark_in_turn(engine, test, benchmark, plans, past));
    for (size_t i = 0; i < plans.size(); ++i) {
      result.run = std::move(runs[i]);
      if (has_plans) {
        result.plan = plan_name(plans[i]);
        result.near_cache_bytes = bench.near_cache_bytes;
      }
      MF_ASSIGN_OR_RETURN(result.traffic,
                          traffic_per_token(*bench.model, test, result.batch, result.run,
                                            bench.options.forced_routes.get()));
      result.routes = routes_of(bench, result.run);
      result.peak_memory_bytes = peak_resident_bytes();
      results.push_back(result);
    }
  }
  return finish_route_trace(engine, std::move(routes));
}

Result<ForcedResult> bench_text(Bench& bench, const std::string& file,
                                std::span<const ForcedPart> parts) {
  ForcedResult result{.file = file};
  for (const ForcedPart& part : parts) {
    (part.is_prompt ? result.prompt_tokens : result.written_tokens) +=
        static_cast<int64_t>(part.tokens.size());
  }
  const Options& options = bench.options;
  ForcedPairsOptions pairs{.drafts = options.model.drafts,
                           .pairs = options.repetitions,
                           .warm_ups = options.no_warmup ? 0 : 1};
  if (pairs.drafts.mode == DraftMode::kOff) pairs.drafts.mode = DraftMode::kAuto;
  result.drafts = pairs.drafts;
  ProgressBar progress(file, static_cast<uint64_t>(2 * pairs.pairs + pairs.warm_ups));
  progress.update(0);
  pairs.progress = [&](int n) { progress.update(static_cast<uint64_t>(n)); };
  MF_ASSIGN_OR_RETURN(result.pairs, run_forced_pairs(bench.open, parts, pairs));
  return result;
}

// Texts of one model, in its first near cache and plan.
Status bench_texts(const Options& options, const std::string& directory,
                   std::vector<ForcedResult>& results) {
  std::vector<std::vector<ForcedPart>> texts;
  std::vector<BenchmarkTest> lengths;
  for (const std::string& file : options.forced_texts) {
    MF_ASSIGN_OR_RETURN(std::vector<ForcedPart> parts, read_forced_text(file, directory));
    BenchmarkTest& length = lengths.emplace_back();
    for (const ForcedPart& part : parts) length.n_gen += static_cast<int64_t>(part.tokens.size());
    texts.push_back(std::move(parts));
  }
  MF_ASSIGN_OR_RETURN(const std::vector<BenchCell> cells,
                      bench_cells(options.near_caches, options.plans));
  if (cells.size() > 1 || cells.front().plans.size() > 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--text takes one near cache and one plan, {} and {} were given",
                      options.near_caches.size(), options.plans.size());
  }
  Bench bench{.options = options, .tests = lengths, .directory = directory};
  const std::unique_ptr<Device> trace = make_trace_device();
  MF_ASSIGN_OR_RETURN(bench.model, load_model(directory, *trace, WeightLoading::kCheckOnly));
  MF_RETURN_IF_ERROR(place_experts(bench, cells.front()));
  for (size_t i = 0; i < texts.size(); ++i) {
    MF_ASSIGN_OR_RETURN(ForcedResult result, bench_text(bench, options.forced_texts[i], texts[i]));
    MF_ASSIGN_OR_RETURN(result.of, result_of(bench, lengths[i]));
    results.push_back(std::move(result));
  }
  return {};
}

Status bench_model(const Options& options, std::span<const BenchmarkTest> tests,
                   const std::string& directory, std::vector<BenchResult>& results) {
  MF_ASSIGN_OR_RETURN(const std::vector<BenchCell> cells,
                      bench_cells(options.near_caches, options.plans));
  if (!options.model.route_trace.empty() && (cells.size() > 1 || cells.front().plans.size() > 1)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--route-trace records one near cache and one plan, {} and {} were given",
                      options.near_caches.size(), options.plans.size());
  }
  Bench bench{.options = options, .tests = tests, .directory = directory};
  const std::unique_ptr<Device> trace = make_trace_device();
  MF_ASSIGN_OR_RETURN(bench.model, load_model(directory, *trace, WeightLoading::kCheckOnly));
  MF_ASSIGN_OR_RETURN(bench.text, text_tokens(options, directory));
  const size_t first = results.size();
  for (const BenchCell& cell : cells) {
    const Status done = bench_cell(bench, cell, results);
    const bool is_left_out = &cell != &cells.front() && !done.ok() &&
                             done.error().code() == ErrorCode::kResourceExhausted &&
                             cell.opening_plan() == PlanMode::kResident;
    if (is_left_out) {
      options.model.log->note(formatted("left out: {}", done.error().message()));
      break;  // it was the last
    }
    MF_RETURN_IF_ERROR(done);
  }
  ExpertStats all;
  for (size_t i = first; i < results.size(); ++i) all += results[i].run.experts;
  MF_ASSIGN_OR_RETURN(const double drive,
                      probe_experts_drive(*bench.model, all, options.probe_seconds));
  for (size_t i = first; i < results.size(); ++i) results[i].drive_probe_bytes_per_second = drive;
  return {};
}

// A GPU's own memory bounds what runs there; of everything else, the CPU's best kernels tell.
Result<std::unique_ptr<Device>> open_probe_device(const ModelOptions& options) {
  if (options.device.name != "cpu") {
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, open_device(options));
    if (device->free_bytes()) return device;
  }
  return make_cpu_device({.threads = options.device.threads, .isa = options.device.isa});
}

// Bytes per second: as given or measured.
Result<double> memory_bandwidth(const Options& options) {
  if (options.memory_gb) return *options.memory_gb * 1e9;
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, open_probe_device(options.model));
  return measure_read_bandwidth(*device, {.seconds = options.probe_seconds});
}

BenchFormat format_of(const std::string& name) {
  if (name == "json") return BenchFormat::kJson;
  return name == "csv" ? BenchFormat::kCsv : BenchFormat::kMarkdown;
}

Status read_forced_routes(Options& options) {
  if (options.routes.empty()) return {};
  MF_ASSIGN_OR_RETURN(RouteTrace trace, RouteTrace::read(options.routes));
  options.forced_routes = std::make_shared<const RouteTrace>(std::move(trace));
  return {};
}

Status run(Options options) {
  const std::vector<BenchmarkTest> tests = tests_of(options);
  if (tests.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "nothing to measure: -p and -n are both 0");
  }
  if (options.models.empty()) {
    MF_ASSIGN_OR_RETURN(const std::string embedded, model_directory(options.model));
    options.models.push_back(embedded);
  }
  MF_RETURN_IF_ERROR(read_forced_routes(options));
  if (!options.forced_texts.empty()) {
    std::vector<ForcedResult> texts;
    for (const std::string& directory : options.models) {
      MF_RETURN_IF_ERROR(bench_texts(options, directory, texts));
    }
    return print_out(render_forced(texts, format_of(options.output)));
  }
  std::vector<BenchResult> results;
  for (const std::string& directory : options.models) {
    MF_RETURN_IF_ERROR(bench_model(options, tests, directory, results));
  }
  // Last, when models have gone, so that its buffer does not count as their memory.
  MF_ASSIGN_OR_RETURN(const double bandwidth, memory_bandwidth(options));
  for (BenchResult& result : results) result.bandwidth_bytes_per_second = bandwidth;
  return print_out(render_bench(results, format_of(options.output)));
}

// Several of what other commands take one of.
void add_plan_lists(CommandOptions& command, Options& options) {
  command.group("Memory");
  command
      .add_list(
          "--near-cache", options.near_caches,
          "GPU memory for experts, like 1G,2G,4G, with one load of the model for all; 0: none "
          "(default: what is free)")
      .value("SIZES")
      .not_empty()
      .check(near_cache_problem)
      .default_text("")
      .in_help_all();
  command
      .add_list("--plan", options.plans,
                "Where experts are computed with a GPU, like auto,near,helper, in turn with each "
                "near cache; resident by itself (see run --help-all)")
      .choices({"auto", "resident", "near", "helper", "shared"})
      .in_help_all();
}

void add_test_options(CommandOptions& command, Options& options) {
  command.group("Tests");
  Option& text =
      command
          .add("--text", options.forced_texts,
               "Forced text: its own next token counts as the model's choice, without drafts and "
               "with them (--draft; auto where it is off), in turn; again: several")
          .value("FILE")
          .not_empty();
  const auto add_counts = [&](const char* name, std::vector<int64_t>& counts, const char* help) {
    command.add_list(name, counts, help).range(0, double(int64_t{1} << 30)).excludes(text);
  };
  add_counts("-p,--n-prompt", options.prompts, "Tokens of a prompt, like 512 or 128,512; 0: none");
  add_counts("-n,--n-gen", options.generations, "Tokens generated one by one; 0: none");
  add_counts("-d,--n-depth", options.depths, "Tokens in the context before");
  command
      .add_list("-np,--parallel", options.parallel,
                "Sequences that generate in common steps, like 1,2,4,8, against taking turns")
      .range(1, 1 << 16)
      .excludes(text);
  command.add("-r,--repetitions", options.repetitions, "Repetitions, after one that warms up")
      .range(1, 10000);
  command.add("--no-warmup", options.no_warmup,
              "Count the first repetition too, with cold caches and a cold drive");
  command
      .add("-b,--batch-size", options.batch,
           "Tokens of a prompt evaluated together; 0: as suits the device")
      .range(0, 1 << 20);
  command.add("-f,--file", options.file, "Text to take tokens from; '-': standard input")
      .value("FILE")
      .default_text("random tokens")
      .excludes(text);
  command
      .add("--routes", options.routes,
           "Route trace to take experts from: natural hit rates with random weights")
      .value("FILE")
      .not_empty()
      .in_help_all();
  command
      .add("--memory-bandwidth", options.memory_gb,
           "GB/s of the memory that bounds tokens per second (default: measured)")
      .value("RATE")
      .range(1e-3, 1e6)
      .in_help_all();
  command.add("-s,--seed", options.seed, "Seed of the random tokens").in_help_all();
  command.add("-o,--output", options.output, "Format of the table: md, json or csv")
      .value("FORMAT")
      .choices({"md", "json", "csv"});
}

}  // namespace
}  // namespace bench_command

Command make_bench_command(const CommandContext& context) {
  auto options = std::make_shared<bench_command::Options>();
  options->model.log = &context.log;
  CommandOptions command(
      "bench", "Measure tokens per second, and the share of the memory bandwidth that they use.");
  command.example("moeflux bench -m FOLDER");
  command.example("moeflux bench -m model.gguf -p 128,512 -n 64 -r 3");
  command.example("moeflux bench -m FOLDER --device cuda:0 --parallel 1,4,8 -o json");
  bench_command::add_test_options(command, *options);
  command.group("Model");
  const Option& models =
      command
          .add("-m,--model", options->models,
               "Model folder or GGUF file; may be repeated (default: the embedded fable-20m)")
          .value("PATH")
          .not_empty();
  add_hub_option(command, options->model, models);
  add_engine_options(command, options->model);
  bench_command::add_plan_lists(command, *options);
  add_route_trace_option(command, options->model);
  return {std::move(command), [options] { return bench_command::run(*options); }};
}

}  // namespace moeflux
