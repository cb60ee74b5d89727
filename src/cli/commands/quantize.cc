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
#include "convert/quantize/model_quantizer.h"
#include "devices/open_device.h"
#include "io/interrupt.h"

namespace moeflux {
namespace quantize_command {
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
  compared.model.device.threads = options.threads;
  return print_perplexity(std::move(compared));
}

}  // namespace
}  // namespace quantize_command

Command make_quantize_command(const CommandContext& context) {
  auto options = std::make_shared<quantize_command::Options>();
  options->model.log = &context.log;
  CommandOptions command("quantize",
                         "Write a quantised model as MLX safetensors, which mlx-lm opens too.");
  command.example("moeflux quantize -m FOLDER -o QUANTISED");
  command.example("moeflux quantize -m FOLDER -o QUANTISED --type mxfp4");
  command.example("moeflux quantize -m FOLDER -o QUANTISED --type affine-6 --compare text.txt");
  command.group("Input and output");
  command.add("-o,--output", options->output, "Folder to write; made when absent")
      .value("FOLDER")
      .required()
      .not_empty();
  command.add("--force", options->force, "Replace a model folder that moeflux wrote");
  command
      .add("--compare", options->text,
           "Text file to print the perplexity of afterwards, with the distance to the source's")
      .value("FILE")
      .not_empty();
  command.group("Format");
  command
      .add("--type", options->type,
           "Format of linear layers, embeddings and experts; routers keep 8 bits or floats: "
           "affine-2, affine-3, affine-4, affine-5, affine-6, affine-8 or mxfp4")
      .value("TYPE")
      .choices({"affine-2", "affine-3", "affine-4", "affine-5", "affine-6", "affine-8", "mxfp4"});
  command
      .add("--group-size", options->group_size,
           "Weights that share a scale of affine types: 32, 64 or 128 (mxfp4: always 32)")
      .choices({"32", "64", "128"});
  add_model_folder_option(command, options->model);
  command.add("-t,--threads", options->threads, "Threads; 0: one per usable core").range(0, 1024);
  return {std::move(command), [options] { return quantize_command::run(*options); }};
}

}  // namespace moeflux
