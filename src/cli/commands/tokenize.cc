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
    print_warning(formatted("{}: {}", directory, tokenizer.warning()));
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

RegisteredCommand add_tokenize_command(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* app = program.add_subcommand("tokenize", "Show the tokens of a text");
  add_model_folder_option(*app, options->model);
  app->add_flag("--ids", options->ids, "Print only ids, comma-separated");
  app->add_flag("--no-parse-special", options->no_special,
                "Treat text that spells a special token as ordinary text");
  app->add_option("-f,--file", options->file, "Read the text from a file ('-': standard input)");
  const CLI::Option* text = app->add_option("text", options->text, "The text");
  return {app, [options, text] { return run(*options, text->count() > 0); }};
}

}  // namespace moeflux
