// moeflux logits: the logits of every position of a token sequence, to a safetensors file.
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "base/format.h"
#include "checkpoint/safetensors.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"

namespace moeflux {
namespace logits_command {
namespace {

struct Options {
  ModelOptions model;
  std::string tokens;
  std::string output;
};

Result<std::vector<TokenId>> parse_tokens(const std::string& text) {
  std::vector<TokenId> tokens;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    TokenId token = 0;
    const auto [stop, error] = std::from_chars(at, end, token);
    if (error != std::errc() || (stop != end && *stop != ',') || stop + 1 == end) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--tokens: '{}' is not a token id; expected a list like 1,2,3",
                        std::string(at, end));
    }
    tokens.push_back(token);
    at = stop == end ? end : stop + 1;
  }
  if (tokens.empty()) return make_error(ErrorCode::kInvalidArgument, "--tokens: the list is empty");
  return tokens;
}

Status run(Options options) {
  MF_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, parse_tokens(options.tokens));
  if (options.model.engine.context_length == 0) {
    MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
    MF_ASSIGN_OR_RETURN(const ModelSpec spec, read_model_spec(directory));
    const auto n = static_cast<int64_t>(tokens.size());
    if (n <= spec.max_position_embeddings) options.model.engine.context_length = n;
  }
  MF_ASSIGN_OR_RETURN(const auto model, open_model(options.model));
  Engine& engine = *model->engine;
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> sequence, engine.create_sequence());
  std::vector<float> logits;
  MF_RETURN_IF_ERROR(engine.eval(*sequence, tokens, {.logits = LogitsMode::kAll},
                                 [&](int64_t, std::span<const float> rows) {
                                   logits.insert(logits.end(), rows.begin(), rows.end());
                                   return Status();
                                 }));
  const safetensors::WriteEntry entry{
      .name = "logits",
      .dtype = DType::kF32,
      .shape = {static_cast<int64_t>(tokens.size()), engine.spec().vocab_size},
      .data = std::as_bytes(std::span(logits))};
  return safetensors::write_file(
      options.output, std::span(&entry, 1),
      {{"model", model->directory}, {"device", model->device_description}});
}

}  // namespace
}  // namespace logits_command

Command make_logits_command(const CommandContext& context) {
  auto options = std::make_shared<logits_command::Options>();
  options->model.log = &context.log;
  CommandOptions command("logits",
                         "Write the logits of every position as tensor `logits` f32 [n, vocab].");
  command.example("moeflux logits --tokens 1,2,3 -o logits.safetensors");
  command.example("moeflux logits -m FOLDER --device reference --tokens 1,2,3 -o l.safetensors");
  command.example(
      "moeflux logits -m model.gguf --tokens \"$(moeflux tokenize -m model.gguf --ids hello)\" -o "
      "l");
  command.group("Input and output");
  command.add("--tokens", options->tokens, "Token ids, like 1,2,3").value("IDS").required();
  command.add("-o,--output", options->output, "Safetensors file to write").value("FILE").required();
  add_model_options(command, options->model);
  return {std::move(command), [options] { return logits_command::run(*options); }};
}

}  // namespace moeflux
