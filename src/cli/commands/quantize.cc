// moeflux quantize: any readable model to MLX safetensors of few bits, for mlx-lm and for us.
#include <chrono>
#include <memory>
#include <string>

#include "base/format.h"
#include "cli/commands/command.h"
#include "cli/commands/perplexity.h"
#include "cli/model_options.h"
#include "cli/packing.h"
#include "cli/terminal.h"
#include "devices/open_device.h"
#include "engine/model_quantizer.h"
#include "io/interrupt.h"

namespace moeflux {
namespace {

struct Options {
  ModelOptions model;
  std::string output;
  std::string type = "affine-4";
  int group_size = 64;
  int threads = 0;
  bool force = false;
  std::string text;  // to compare perplexities on; empty: no comparison
};

Status write(const Options& options, const std::string& directory) {
  MF_ASSIGN_OR_RETURN(const QuantizeType type,
                      QuantizeType::parse(options.type, options.group_size));
  MF_ASSIGN_OR_RETURN(PackSource source, open_pack_source(directory));
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Device> host, open_device({.name = "reference"}));
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<ModelQuantizer> quantizer,
                      ModelQuantizer::create(std::move(source), *host, {.type = type}));
  const std::unique_ptr<InterruptListener> interrupts = listen_for_interrupts();
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar progress("quantize", quantizer->total_bytes());
    const Status written =
        quantizer->write({.directory = options.output,
                          .threads = options.threads,
                          .replace = options.force,
                          .stop = interrupts->token(),
                          .progress = [&](uint64_t done) { progress.update(done); }});
    if (!written.ok() && written.error().code() == ErrorCode::kCancelled) {
      return make_error(ErrorCode::kFailedPrecondition, "{}: stopped; what is there is no model",
                        options.output);
    }
    MF_RETURN_IF_ERROR(written);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return print_out(formatted("{}: {}, {}\n", options.output, type.to_string(),
                             describe_rate(quantizer->total_bytes(), seconds.count())));
}

Status run(const Options& options) {
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_RETURN_IF_ERROR(write(options, directory));
  if (options.text.empty()) return {};
  PerplexityOptions compared{.file = options.text, .base = directory};
  compared.model.model = options.output;
  compared.model.threads = options.threads;
  return print_perplexity(std::move(compared));
}

}  // namespace

RegisteredCommand add_quantize_command(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* app = program.add_subcommand(
      "quantize", "Write a model of few bits a weight as MLX safetensors, which mlx-lm opens");
  add_model_folder_option(*app, options->model);
  app->add_option("-o,--output", options->output, "Folder to write; made when absent")
      ->required()
      ->check(not_empty());
  app->add_option("--type", options->type,
                  "Of linear layers, embeddings and experts; routers take 8 bits or stay floats")
      ->check(CLI::IsMember(
          {"affine-2", "affine-3", "affine-4", "affine-5", "affine-6", "affine-8", "mxfp4"}))
      ->capture_default_str();
  app->add_option("--group-size", options->group_size,
                  "Weights that share a scale, of affine types (mxfp4 has 32)")
      ->check(CLI::IsMember({32, 64, 128}))
      ->capture_default_str();
  app->add_option(
         "--compare", options->text,
         "Then print the perplexity of this text file, and how far it is from the source's")
      ->check(not_empty());
  app->add_option("-t,--threads", options->threads, "Threads (0: one per usable core)")
      ->check(CLI::Range(0, 1024));
  app->add_flag("--force", options->force, "Replace the model in a folder, if moeflux wrote it");
  return {app, [options] { return run(*options); }};
}

}  // namespace moeflux
