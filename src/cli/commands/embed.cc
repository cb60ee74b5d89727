// moeflux embed: texts to vectors, as lines of JSON or an array for NumPy.
#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "chat/embedding/embedding.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "io/file.h"

namespace moeflux {
namespace embed_command {
namespace {

struct Options {
  ModelOptions model;
  std::vector<std::string> texts;
  std::string file;
  std::string output;
  std::string prompt_name;
  std::string pooling;
  int64_t dimensions = 0;
};

using Vectors = std::vector<std::vector<float>>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    begin = end + 1;
  }
  return lines;
}

// Version 1.0 of NumPy's format: a header of text, padded to 64 bytes, and numbers.
std::string numpy_array(const Vectors& vectors) {
  std::string header = formatted("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}",
                                 vectors.size(), vectors.front().size());
  constexpr size_t kBefore = 10;
  header.append(63 - (kBefore + header.size()) % 64, ' ');
  header += '\n';
  std::string file = "\x93NUMPY\x01";
  file += '\0';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  for (const auto& vector : vectors) {
    for (const float number : vector) {
      const auto word = std::bit_cast<uint32_t>(number);
      for (const int shift : {0, 8, 16, 24}) file += static_cast<char>(word >> shift);
    }
  }
  return file;
}

std::string json_lines(const Vectors& vectors) {
  std::string lines;
  for (size_t i = 0; i < vectors.size(); ++i) {
    lines += formatted(R"({{"index":{},"embedding":[)", i);
    for (size_t j = 0; j < vectors[i].size(); ++j) {
      lines += formatted("{}{}", j == 0 ? "" : ",", vectors[i][j]);
    }
    lines += "]}\n";
  }
  return lines;
}

Status run(Options options) {
  if (options.texts.empty() == options.file.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "embed needs either texts or -f FILE with one on each line ('-' is standard "
                      "input)");
  }
  if (!options.file.empty()) {
    MF_ASSIGN_OR_RETURN(const std::string text, read_text_input(options.file));
    options.texts = lines_of(text);
    if (options.texts.empty()) {
      return make_error(ErrorCode::kInvalidArgument, "{} has no line", options.file);
    }
  }
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(ModelText text, load_model_text(directory));
  if (!text.tokenizer.ok()) return text.tokenizer.error();
  set_pooling(options.pooling, text);
  if (!text.embedding.ok()) return text.embedding.error();
  std::vector<std::vector<TokenId>> tokens;
  for (size_t i = 0; i < options.texts.size(); ++i) {
    auto ids =
        embedding_tokens(*text.tokenizer, *text.embedding, options.texts[i], options.prompt_name);
    if (!ids.ok()) return ids.error().with_context(formatted("text {}", i));
    tokens.push_back(std::move(ids).value());
  }
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options.model));
  MF_ASSIGN_OR_RETURN(const auto model,
                      open_model(options.model, directory, std::move(engine), std::move(text)));
  MF_ASSIGN_OR_RETURN(const Vectors vectors, embed(*model, *model->text.embedding, tokens,
                                                   {.dimensions = options.dimensions}));
  if (options.output.empty()) return print_out(json_lines(vectors));
  return write_text_file(options.output, numpy_array(vectors));
}

}  // namespace
}  // namespace embed_command

Command make_embed_command(const CommandContext& context) {
  auto options = std::make_shared<embed_command::Options>();
  options->model.log = &context.log;
  CommandOptions command("embed", "Make embeddings of texts: a line of JSON for each.");
  command.example("moeflux embed -m FOLDER \"a fox\" \"once upon a time\"");
  command.example(
      "moeflux embed -m model.gguf --prompt-name query \"what is a Mixture of Experts?\"");
  command.example("moeflux embed -m FOLDER -f lines.txt -o vectors.npy");
  command.group("Input and output");
  command.add("text", options->texts, "Texts to embed")
      .value("TEXT")
      .repeatable()
      .command_line_only();
  command.add("-f,--file", options->file, "File with a text on each line; '-': standard input")
      .value("FILE")
      .command_line_only();
  command
      .add("-o,--output", options->output,
           "File for a NumPy array f32 [texts, dimensions], instead of lines of JSON")
      .value("FILE")
      .command_line_only();
  command
      .add("--prompt-name", options->prompt_name,
           "Prompt before each text, of those that the model's files name")
      .value("NAME");
  add_pooling_option(command, options->pooling);
  command
      .add("--dimensions", options->dimensions,
           "First numbers of each vector to keep, normalised again; 0: all")
      .range(0, 1 << 20);
  add_model_options(command, options->model);
  return {std::move(command), [options] { return embed_command::run(*options); }};
}

}  // namespace moeflux
