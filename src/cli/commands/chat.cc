// moeflux chat: a conversation in the terminal. Ctrl-C stops an answer; at the prompt it empties
// the line, and where there is no line editor it ends the program.
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "chat/chat_format.h"
#include "chat/open_model.h"
#include "cli/chat/chat_loop.h"
#include "cli/commands/command.h"
#include "cli/constraint_options.h"
#include "cli/model_options.h"
#include "cli/sampling_options.h"
#include "cli/template_option.h"
#include "cli/terminal.h"
#include "io/interrupt.h"

namespace moeflux {
namespace chat_command {
namespace {

struct Options {
  ModelOptions model;
  SamplingFlags sampling;
  ConstraintFlags constraint;
  std::string prompt;
  std::string system;
  std::string template_file;
  std::vector<std::string> stop_strings;
  int64_t tokens_max = -1;
  int64_t reasoning_budget = -1;
  bool ignore_eos = false;
  bool statistics = false;
  bool no_history = false;
};

CommandOutcome run(const Options& options) {
  const std::unique_ptr<LineEditor> editor =
      make_line_editor(ChatHistory(options.no_history ? std::nullopt : chat_history_path()));
  std::mutex mutex;
  ChatLoop* loop = nullptr;  // while there is one
  bool line_takes_interrupts = false;
  const std::unique_ptr<InterruptListener> interrupts = listen_for_interrupts([&] {
    const std::lock_guard lock(mutex);
    const bool stopped = loop != nullptr && loop->interrupt();
    if (!stopped && !line_takes_interrupts) end_interrupted();
  });
  const std::stop_callback at_once(interrupts->token(), [&] {
    editor->give_terminal_back();
    end_interrupted();
  });
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(ModelText text, load_model_text(directory));
  if (!text.tokenizer.ok()) return text.tokenizer.error();
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  MF_ASSIGN_OR_RETURN(SamplerOptions sampler,
                      sampler_options(options.sampling, text.defaults.sampler));
  MF_ASSIGN_OR_RETURN(OutputConstraint constraint, output_constraint(options.constraint));
  MF_ASSIGN_OR_RETURN(const auto given, given_template(options.template_file));
  // Before the weights are read: that may take minutes.
  {
    MF_ASSIGN_OR_RETURN(const auto usable, ChatFormat::load(*source, *text.tokenizer, given));
    check_question(*usable, *options.model.log);
  }
  if (options.sampling.draws_seed()) options.model.log->note(formatted("seed {}", sampler.seed));
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options.model));
  MF_ASSIGN_OR_RETURN(const auto model,
                      open_model(options.model, directory, std::move(engine), std::move(text)));
  note_context(options.model, *model);
  MF_ASSIGN_OR_RETURN(auto format, ChatFormat::load(*source, *model->text.tokenizer, given));
  MF_ASSIGN_OR_RETURN(
      const std::unique_ptr<ChatLoop> chat,
      ChatLoop::start(
          model, std::move(format),
          {.sampler = std::move(sampler),
           .tokens_max = options.tokens_max,
           .reasoning_tokens_max = options.reasoning_budget,
           .ignore_stop_tokens = options.ignore_eos,
           .stop_strings = options.stop_strings,
           .constraint = std::move(constraint),
           .system = options.system,
           .shows_statistics = options.statistics && options.model.log->shows(LogLevel::kInfo)}));
  {
    const std::lock_guard lock(mutex);
    loop = chat.get();
    line_takes_interrupts = editor->takes_interrupts();
  }
  CommandOutcome done = chat->run(*editor, options.prompt);
  if (chat->was_cut()) done.exit_status = kExitCut;
  const std::lock_guard lock(mutex);
  loop = nullptr;
  line_takes_interrupts = false;
  return done;
}

}  // namespace
}  // namespace chat_command

Command make_chat_command(const CommandContext& context) {
  auto options = std::make_shared<chat_command::Options>();
  options->model.log = &context.log;
  CommandOptions command(
      "chat", "Talk with a model. /help lists commands; Ctrl-C stops an answer, Ctrl-D ends.");
  command.example("moeflux chat -m FOLDER");
  command.example("moeflux chat -m model.gguf -sys \"Answer in one sentence.\"");
  command.example("moeflux chat -m FOLDER --device cpu \"How do tides work?\"");
  command.group("Conversation");
  command.add("prompt,-p,--prompt", options->prompt, "First question")
      .value("QUESTION")
      .command_line_only();
  command.add("-sys,--system-prompt", options->system, "Instructions that come before all else");
  add_template_option(command, options->template_file);
  command
      .add("-n,--n-predict,--predict", options->tokens_max,
           "Tokens of an answer; -1: until its end")
      .range(-1, 1e9);
  command
      .add("-r,--reverse-prompt", options->stop_strings,
           "Text that ends an answer, and is left out; may be repeated")
      .in_help_all();
  command
      .add("--reasoning-budget", options->reasoning_budget,
           "Tokens of reasoning in an answer; -1: no limit")
      .in_help_all();
  command.add("--ignore-eos", options->ignore_eos, "Go on after an end-of-text token")
      .in_help_all();
  command
      .add("--no-history", options->no_history,
           "Neither read nor save input lines (chat_history in ~/.local/state/moeflux)")
      .in_help_all();
  command.add("--stats", options->statistics, "Tokens and seconds after each answer").in_help_all();
  add_model_options(command, options->model);
  add_sampling_options(command, options->sampling);
  add_constraint_options(command, options->constraint);
  return {std::move(command), [options] { return chat_command::run(*options); }};
}

}  // namespace moeflux
