// moeflux pack: a model folder whose experts stream fast, made from one in any layout.
#include <chrono>
#include <memory>
#include <string>

#include "base/format.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/packing.h"
#include "cli/terminal.h"
#include "convert/pack/model_packer.h"
#include "io/interrupt.h"

namespace moeflux {
namespace pack_command {
namespace {

struct Options {
  ModelOptions model;
  std::string output;
  std::string order = "tiled";
  std::string bits;  // of --bits or --group, which are refused
  int threads = 0;
  bool verify = false;
  bool force = false;
};

PackFormat format_of(const Options& options) {
  PackFormat format;
  format.order = options.order == "tiled" ? WeightOrder::kTiled : WeightOrder::kRowMajor;
  return format;
}

Result<std::unique_ptr<ModelPacker>> open_packer(const Options& options) {
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(PackSource source, open_pack_source(directory));
  return ModelPacker::create(std::move(source), format_of(options));
}

Status verify(const Options& options, const InterruptListener& interrupts) {
  MF_RETURN_IF_ERROR(check_model_folder(options.output));
  MF_ASSIGN_OR_RETURN(const TensorIndex index, TensorIndex::open(options.output));
  if (!index.has_expert_pack()) {
    return make_error(ErrorCode::kNotFound, "{}: no {} in the folder", options.output,
                      kExpertPackName);
  }
  const auto start = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  for (const auto& [number, layer] : index.packed_layers()) bytes += layer.layout.file_bytes();
  std::unique_ptr<ModelPacker> packer;
  if (!options.model.model.empty()) {
    MF_ASSIGN_OR_RETURN(packer, open_packer(options));
    bytes = packer->total_bytes();
  }
  {
    ProgressBar progress("verify", bytes);
    const PackRun run = {.directory = options.output,
                         .threads = options.threads,
                         .stop = interrupts.token(),
                         .progress = [&](uint64_t done) { progress.update(done); }};
    MF_RETURN_IF_ERROR(packer != nullptr ? packer->compare(run) : verify_expert_pack(index, run));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return print_out(formatted(
      "{}: {}; {}\n", options.output,
      packer != nullptr ? "every byte is what the source gives" : "every expert has its checksum",
      describe_rate(bytes, seconds.count())));
}

Status pack(const Options& options, const InterruptListener& interrupts) {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<ModelPacker> packer, open_packer(options));
  return run_packer(*packer, {.directory = options.output,
                              .threads = options.threads,
                              .replace = options.force,
                              .stop = interrupts.token()});
}

Status run(const Options& options) {
  if (!options.bits.empty()) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "--bits, --group: pack keeps the model's formats; run `moeflux quantize` with "
        "--type and --group-size first, then pack its folder");
  }
  const std::unique_ptr<InterruptListener> interrupts = listen_for_interrupts();
  if (!options.verify) return pack(options, *interrupts);
  const Status verified = verify(options, *interrupts);
  if (verified.ok() || !interrupts->token().stop_requested()) return verified;
  return make_error(ErrorCode::kFailedPrecondition, "{}: stopped; nothing wrong was found so far",
                    options.output);
}

}  // namespace
}  // namespace pack_command

Command make_pack_command(const CommandContext& context) {
  auto options = std::make_shared<pack_command::Options>();
  options->model.log = &context.log;
  CommandOptions command("pack",
                         "Write a model folder whose experts stream fast, from one in any layout.");
  command.example("moeflux pack -m FOLDER -o PACKED");
  command.example("moeflux pack -m model.gguf -o PACKED");
  command.example("moeflux pack -o PACKED --verify");
  command.group("Input and output");
  command
      .add("-o,--output", options->output,
           "Folder to write; made when absent, continued when a run was stopped")
      .value("FOLDER")
      .required()
      .not_empty();
  command.add("--force", options->force, "Replace a model folder that moeflux wrote");
  command.add("--verify", options->verify,
              "Check the folder of -o against its checksums or, with -m and the options it was "
              "packed with, against the source");
  command.group("Layout");
  command
      .add("--order", options->order,
           "Layout of 4- and 8-bit experts: tiled (fastest on CPUs) or row-major")
      .value("ORDER")
      .choices({"tiled", "row-major"});
  command.add("--bits,--group", options->bits, "Refused: quantize does it").hidden();
  add_model_folder_option(command, options->model);
  command.add("-t,--threads", options->threads, "Threads; 0: one per usable core").range(0, 1024);
  return {std::move(command), [options] { return pack_command::run(*options); }};
}

}  // namespace moeflux
