// moeflux tokenize: text to tokens, one a line with its id, or the bare ids.
#include <memory>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "chat/model_text.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "cli/text_input.h"

namespace moeflux {
namespace tokenize_command {
namespace {

struct Options {
  ModelOptions model;
  std::string text;
  std::string file;
  bool ids = false;
  bool no_special = false;
};

Status run(Options options, bool text_given) {
  if (text_given == !options.file.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "tokenize needs either a text or -f FILE ('-' is standard input)");
  }
  if (!options.file.empty()) {
    MF_ASSIGN_OR_RETURN(options.text, read_text_input(options.file));
  }
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(directory));
  if (!tokenizer.warning().empty()) {
    options.model.log->warning(formatted("{}: {}", directory, tokenizer.warning()));
  }
  MF_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                      tokenizer.encode(options.text, {.match_added_tokens = !options.no_special}));
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (options.ids) {
      out += formatted("{}{}", i == 0 ? "" : ",", tokens[i]);
    } else {
      out += formatted("{:>8}  {}\n", tokens[i], Json(tokenizer.token_text(tokens[i])).dump());
    }
  }
  if (options.ids) out += "\n";
  return print_out(out);
}

}  // namespace
}  // namespace tokenize_command

Command make_tokenize_command(const CommandContext& context) {
  auto options = std::make_shared<tokenize_command::Options>();
  options->model.log = &context.log;
  CommandOptions command("tokenize", "Show the tokens of a text.");
  command.example("moeflux tokenize \"Once upon a time\"");
  command.example("moeflux tokenize -m FOLDER --ids -f prompt.txt");
  command.example("echo hello | moeflux tokenize -m model.gguf -f -");
  command.group("Text");
  const Option& text =
      command.add("text", options->text, "Text to split").value("TEXT").command_line_only();
  command.add("-f,--file", options->file, "File with the text; '-': standard input")
      .value("FILE")
      .command_line_only();
  command.add("--ids", options->ids, "Print only ids, with commas between");
  command.add("--no-parse-special", options->no_special,
              "Read the spelling of a special token as ordinary text");
  add_model_folder_option(command, options->model);
  return {std::move(command),
          [options, &text] { return tokenize_command::run(*options, text.given()); }};
}

}  // namespace moeflux
