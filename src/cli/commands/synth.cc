// moeflux synth: a random checkpoint of a real model's shape, to measure what nobody downloaded; as
// GGUF also beside other programs.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "checkpoint/gguf.h"
#include "cli/commands/command.h"
#include "cli/packing.h"
#include "cli/terminal.h"
#include "convert/random/synthetic.h"
#include "convert/random/synthetic_gguf.h"
#include "convert/random/synthetic_model.h"
#include "convert/written_folder.h"
#include "io/file.h"
#include "io/interrupt.h"
#include "io/path_text.h"
#include "quant/ggml_types.h"
#include "text/byte_tokenizer.h"

namespace moeflux {
namespace synth_command {
namespace {

struct Options {
  std::string like;
  std::string output;
  std::string gguf;  // a type's name; empty: the MLX layout
  std::vector<std::string> mix;
  SyntheticModelOptions model;
  uint64_t seed = 0;
  int threads = 0;
  bool force = false;
  bool list = false;
  bool pack = false;
};

constexpr std::string_view kTokenizerName = "tokenizer.json";

Result<const GgmlType*> gguf_type(const Options& options) {
  const GgmlType* type = find_ggml_type(options.gguf);
  if (type != nullptr) return type;
  return make_error(ErrorCode::kInvalidArgument, "--gguf {}: no type of GGML has this name",
                    options.gguf);
}

Result<std::vector<GgufNamedType>> named_types(const Options& options) {
  std::vector<GgufNamedType> named;
  for (const std::string& text : options.mix) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == text.npos) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--mix {}: expected NAME=TYPE, such as ffn_down_exps=Q2_0", text);
    }
    const std::string type = text.substr(equals + 1);
    named.push_back({text.substr(0, equals), find_ggml_type(type)});
    if (named.back().type == nullptr) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--mix {}: no type of GGML has the name \"{}\"", text, type);
    }
  }
  return named;
}

/// As it would be written; 0 where these layers cannot be.
uint64_t size_of(const SyntheticModelShape& shape, const SyntheticModelOptions& model,
                 const GgmlType* type, std::span<const GgufNamedType> named) {
  if (type == nullptr) {
    const auto checkpoint = make_synthetic_model(shape.name, model);
    return checkpoint.ok() ? checkpoint->size_bytes() : 0;
  }
  const auto made = make_synthetic_gguf(shape.name, model.num_layers, *type, named);
  return made.ok() ? made->checkpoint.size_bytes() : 0;
}

Status list_shapes(const Options& options) {
  const GgmlType* type = nullptr;
  MF_ASSIGN_OR_RETURN(const std::vector<GgufNamedType> named, named_types(options));
  if (!options.gguf.empty()) {
    MF_ASSIGN_OR_RETURN(type, gguf_type(options));
  }
  std::string text;
  for (const SyntheticModelShape& shape : synthetic_model_shapes()) {
    SyntheticModelOptions fitting = options.model;
    if (fitting.num_layers > shape.num_layers) fitting.num_layers = shape.num_layers;
    const uint64_t bytes = size_of(shape, fitting, type, named);
    if (bytes == 0) continue;
    text +=
        formatted("{:<22} {:>11}  {:>2} layers  {}\n", shape.name, format_bytes(bytes),
                  fitting.num_layers > 0 ? fitting.num_layers : shape.num_layers, shape.model_type);
  }
  return print_out(text);
}

/// Runs `writing` with a bar, and says what became of how many bytes, or what is left of it when
/// the user stopped it.
Status show_writing(const std::string& name, uint64_t bytes, std::string_view when_stopped,
                    const std::function<Status(ProgressBar&)>& writing) {
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar progress("synth", bytes);
    const Status written = writing(progress);
    if (!written.ok() && written.error().code() == ErrorCode::kCancelled) {
      return make_error(ErrorCode::kFailedPrecondition, "{}: stopped; {}", name, when_stopped);
    }
    MF_RETURN_IF_ERROR(written);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return print_out(formatted("{}: {} in {:.1f} s, {:.0f} MB/s\n", name, format_bytes(bytes),
                             seconds.count(), static_cast<double>(bytes) / 1e6 / seconds.count()));
}

// One file, which appears when it is whole.
Status write_gguf(const Options& options, const InterruptListener& interrupts) {
  MF_ASSIGN_OR_RETURN(const GgmlType* type, gguf_type(options));
  MF_ASSIGN_OR_RETURN(const std::vector<GgufNamedType> named, named_types(options));
  const Result<SyntheticGguf> made =
      make_synthetic_gguf(options.like, options.model.num_layers, *type, named);
  if (!made.ok()) return made.error().with_context("--like " + options.like);
  if (path_exists(options.output) && !(options.force && gguf::begins_with_magic(options.output))) {
    return make_error(ErrorCode::kFailedPrecondition, "{} exists{}", options.output,
                      options.force ? " and is not a GGUF file" : "; --force replaces it");
  }
  const std::string directory = folder_of(options.output);
  const std::string name(file_name_of(options.output));
  const uint64_t bytes = made->checkpoint.size_bytes();
  MF_RETURN_IF_ERROR(check_free_space(directory, "checkpoint", bytes));
  const auto write_file = [&](ProgressBar& progress) {
    return write_synthetic_gguf(made->keys, made->checkpoint, name,
                                {.directory = directory,
                                 .seed = options.seed,
                                 .threads = options.threads,
                                 .stop = interrupts.token(),
                                 .progress = [&](uint64_t done) { progress.update(done); }});
  };
  return show_writing(options.output, bytes, "nothing was written", write_file);
}

// Nothing is written unpacked: the packer reads a checkpoint that exists nowhere.
Status pack(const Options& options, const SyntheticCheckpoint& checkpoint,
            const InterruptListener& interrupts) {
  PackSource source = {.name = "--like " + options.like,
                       .identity = formatted("seed {}", options.seed),
                       .config_json = checkpoint.config_json,
                       .index = index_synthetic(checkpoint, options.seed)};
  source.side_files.push_back({std::string(kTokenizerName), byte_tokenizer_json()});
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<ModelPacker> packer,
                      ModelPacker::create(std::move(source), {}));
  return run_packer(*packer, {.directory = options.output,
                              .threads = options.threads,
                              .replace = options.force,
                              .stop = interrupts.token()});
}

Status write(const Options& options, const SyntheticCheckpoint& checkpoint,
             const InterruptListener& interrupts) {
  const uint64_t bytes = checkpoint.size_bytes();
  std::set<std::string> files = synthetic_files(checkpoint);
  files.insert(std::string(kTokenizerName));
  MF_ASSIGN_OR_RETURN(
      const std::unique_ptr<WrittenFolder> folder,
      WrittenFolder::open(
          {.directory = options.output, .files = std::move(files), .replace = options.force}));
  MF_RETURN_IF_ERROR(check_free_space(folder->path(), "checkpoint", bytes));
  MF_RETURN_IF_ERROR(folder->begin());
  MF_RETURN_IF_ERROR(
      write_text_file(formatted("{}/{}", folder->path(), kTokenizerName), byte_tokenizer_json()));
  const auto write_folder = [&](ProgressBar& progress) -> Status {
    MF_RETURN_IF_ERROR(
        write_synthetic(checkpoint, {.directory = folder->path(),
                                     .seed = options.seed,
                                     .threads = options.threads,
                                     .stop = interrupts.token(),
                                     .progress = [&](uint64_t done) { progress.update(done); }}));
    return folder->finish();
  };
  return show_writing(options.output, bytes, "the checkpoint is incomplete", write_folder);
}

Status run(const Options& options) {
  if (!options.mix.empty() && options.gguf.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "--mix needs --gguf TYPE for other matrices");
  }
  if (options.list) return list_shapes(options);
  if (options.like.empty() || options.output.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "synth needs --like NAME and -o FOLDER (--list shows the names)");
  }
  const std::unique_ptr<InterruptListener> interrupts = listen_for_interrupts();
  if (!options.gguf.empty()) return write_gguf(options, *interrupts);
  const auto checkpoint = make_synthetic_model(options.like, options.model);
  if (!checkpoint.ok()) return checkpoint.error().with_context("--like " + options.like);
  if (options.pack) return pack(options, *checkpoint, *interrupts);
  return write(options, *checkpoint, *interrupts);
}

}  // namespace
}  // namespace synth_command

Command make_synth_command(const CommandContext& /*context*/) {
  auto options = std::make_shared<synth_command::Options>();
  CommandOptions command(
      "synth",
      "Write a random checkpoint with the exact shape of a published model, to measure it.");
  command.example("moeflux synth --list");
  command.example("moeflux synth --like qwen3-30b-a3b -o FOLDER --layers 4");
  command.example("moeflux synth --like qwen3-30b-a3b -o model.gguf --gguf Q4_K");
  command.example("moeflux synth --like tiny -o m.gguf --gguf Q4_0 --mix ffn_down_exps=Q2_0");
  command.group("Output");
  command.add("--list", options->list, "Print the names of all shapes, and their sizes");
  command.add("--like", options->like, "Name of the shape (see --list)").value("NAME").not_empty();
  command
      .add("-o,--output", options->output,
           "Folder to write, made when absent; with --gguf the file")
      .value("PATH")
      .not_empty();
  command.add("--force", options->force, "Replace a model folder that moeflux wrote");
  command.group("Weights");
  command.add("--layers", options->model.num_layers, "Number of layers, from the first; 0: all")
      .range(0, 1 << 20);
  Option& bits =
      command.add("--bits", options->model.bits, "Bits of a weight, routers and gates 8: 4 or 8")
          .choices({"4", "8"});
  Option& group =
      command.add("--group", options->model.group_size, "Weights that share a scale: 32, 64 or 128")
          .choices({"32", "64", "128"});
  Option& gguf = command
                     .add("--gguf", options->gguf,
                          "Type of a GGUF file's matrices: Q4_0, Q4_K, IQ4_XS, ... (default: a "
                          "folder of MLX safetensors)")
                     .value("TYPE")
                     .not_empty()
                     .excludes(bits)
                     .excludes(group);
  command
      .add_list("--mix", options->mix,
                "Other types for matrices of the GGUF file whose names begin so")
      .value("NAME=TYPE,...");
  command.add("--pack", options->pack, "Write a packed folder, as moeflux pack does")
      .excludes(gguf);
  command.add("-s,--seed", options->seed, "Seed; the same seed gives the same bytes");
  command.add("-t,--threads", options->threads, "Threads; 0: one per usable core").range(0, 1024);
  return {std::move(command), [options] { return synth_command::run(*options); }};
}

}  // namespace moeflux
