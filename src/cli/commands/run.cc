// moeflux run: continues a prompt, token by token, and ends with a line of statistics. Ctrl-C ends
// the text, not the program's success: statistics follow and the exit status is 0. A second Ctrl-C,
// or one while the model is being loaded, ends the program at once, with status 130.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/format.h"
#include "chat/answer_reader.h"
#include "chat/chat_format.h"
#include "chat/model_text.h"
#include "chat/session.h"
#include "cli/commands/command.h"
#include "cli/constraint_options.h"
#include "cli/model_options.h"
#include "cli/run_report.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "constraint/constraint.h"
#include "io/file.h"
#include "io/host_memory.h"
#include "io/interrupt.h"

namespace moeflux {
namespace {

struct Options {
  ModelOptions model;
  SamplingFlags sampling;
  ConstraintFlags constraint;
  std::string prompt;
  std::string file;
  std::string prompt_cache;
  int64_t tokens_max = 128;
  int64_t reasoning_budget = -1;
  std::vector<std::string> stop_strings;
  bool ignore_eos = false;
  bool quiet = false;
  bool json = false;
};

Result<std::string> read_prompt(const Options& options, bool prompt_given) {
  if (prompt_given && !options.file.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "give the prompt as text or with -f, not both");
  }
  if (prompt_given) return options.prompt;
  if (options.file.empty() && isatty(STDIN_FILENO) == 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      "no prompt; give one as an argument, with -f FILE or on standard input");
  }
  MF_ASSIGN_OR_RETURN(std::string prompt,
                      read_text_input(options.file.empty() ? "-" : options.file));
  // An editor's last newline belongs to the file; after a prompt it means that a line is over.
  if (prompt.ends_with('\n')) prompt.pop_back();
  return prompt;
}

// Closes reasoning that goes on for too long, as the model's format has it.
class ReasoningLimit {
 public:
  ReasoningLimit(std::shared_ptr<const ChatFormat> format, std::string prompt, int64_t tokens_max)
      : format_(std::move(format)),
        reader_(
            *format_,
            {.prompt_tail = std::move(prompt), .tools = {}, .reasoning_tokens_max = tokens_max}) {}

  /// The tokens that have to follow this one.
  std::vector<TokenId> after(const DrawnToken& drawn) {
    std::string_view text = drawn.text;
    for (const auto& [marker, id] : format_->markers()) {
      if (id == drawn.token) text = marker;  // a special token has no text otherwise
    }
    std::vector<OutputEvent> events;
    return reader_.push(drawn.token, text, events).forced;
  }

 private:
  const std::shared_ptr<const ChatFormat> format_;
  AnswerReader reader_;
};

// All there is before the first token.
struct Loaded {
  std::string prompt;
  std::vector<TokenId> tokens;
  uint64_t seed = 0;
  std::shared_ptr<Session> session;
  std::unique_ptr<ReasoningLimit> reasoning;  // or null
};

// Takes what the file keeps of the prompt's beginning, and leaves the rest in `loaded.tokens`. The
// text is the same without.
Status use_prompt_cache(const std::string& path, Loaded& loaded) {
  if (!path_exists(path)) return {};
  Session& session = *loaded.session;
  MF_RETURN_IF_ERROR(session.load_file(path));
  const std::span<const TokenId> kept = session.tokens();
  const auto common =
      static_cast<size_t>(std::ranges::mismatch(kept, loaded.tokens).in1 - kept.begin());
  // The last token's logits are what the text goes on from.
  const size_t begin = std::min(common, loaded.tokens.size() - 1);
  if (begin < kept.size()) MF_RETURN_IF_ERROR(session.truncate(static_cast<int64_t>(begin)));
  loaded.tokens.erase(loaded.tokens.begin(), loaded.tokens.begin() + static_cast<int64_t>(begin));
  return {};
}

// The format of a model that reasons; null without a limit.
Result<std::shared_ptr<const ChatFormat>> reasoning_format(const Options& options,
                                                           const std::string& directory,
                                                           const Tokenizer& tokenizer) {
  if (options.reasoning_budget < 0) return std::shared_ptr<const ChatFormat>();
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  Result<std::shared_ptr<const ChatFormat>> format = ChatFormat::load(*source, tokenizer);
  if (!format.ok()) return format.error().with_context("--reasoning-budget");
  if ((*format)->reasoning_close().empty()) {
    return make_error(ErrorCode::kUnsupported, "--reasoning-budget: {} writes no reasoning",
                      directory);
  }
  return format;
}

// An interrupt ends the program in here: nothing has been written that would have to be finished,
// and a model's reads do not wait for anybody. Mistakes in options and prompt are reported before
// the weights are read.
Result<Loaded> load(const Options& options, bool prompt_given, const std::stop_token& stop) {
  const std::stop_callback at_once(stop, [] { end_interrupted(); });
  Loaded loaded;
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(ModelText text, load_model_text(directory));
  MF_ASSIGN_OR_RETURN(SamplerOptions sampler,
                      sampler_options(options.sampling, text.defaults.sampler));
  MF_ASSIGN_OR_RETURN(OutputConstraint constraint, output_constraint(options.constraint));
  MF_ASSIGN_OR_RETURN(loaded.prompt, read_prompt(options, prompt_given));
  if (!text.tokenizer.ok()) return text.tokenizer.error();
  MF_ASSIGN_OR_RETURN(loaded.tokens,
                      text.tokenizer->encode(loaded.prompt, {.add_special_tokens = true}));
  if (loaded.tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "the prompt is empty");
  }
  if (const auto usable = reasoning_format(options, directory, *text.tokenizer); !usable.ok()) {
    return usable.error();
  }
  loaded.seed = sampler.seed;
  if (options.sampling.draws_seed() && !options.json) {
    options.model.log->note(formatted("seed {}", loaded.seed));
  }
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options.model));
  MF_ASSIGN_OR_RETURN(auto model,
                      open_model(options.model, directory, std::move(engine), std::move(text)));
  if (!options.quiet && !options.json) {
    note_context(options.model, *model);
    note_host_share(options.model, *model);
    note_pack_gain(options.model, *model);
  }
  MF_ASSIGN_OR_RETURN(auto format, reasoning_format(options, directory, *model->text.tokenizer));
  if (format) {
    loaded.reasoning = std::make_unique<ReasoningLimit>(std::move(format), loaded.prompt,
                                                        options.reasoning_budget);
  }
  MF_ASSIGN_OR_RETURN(loaded.session, Session::create(std::move(model)));
  if (!options.prompt_cache.empty()) {
    MF_RETURN_IF_ERROR(use_prompt_cache(options.prompt_cache, loaded));
  }
  MF_RETURN_IF_ERROR(loaded.session->set_sampler(std::move(sampler)));
  MF_RETURN_IF_ERROR(loaded.session->set_constraint(std::move(constraint)));
  return loaded;
}

// The prompt and its continuation on standard output, after a bar while the prompt is read: on a
// terminal both would have the same line.
class TextOutput {
 public:
  TextOutput(std::string prompt, size_t tokens) : prompt_(std::move(prompt)) {
    bar_.emplace("prompt", tokens, ProgressUnit::kTokens);
    bar_->update(0);
  }
  void show_progress(int64_t tokens) { bar_->update(static_cast<uint64_t>(tokens)); }
  void clear_progress() { bar_.reset(); }
  /// False when it could not be written.
  bool write(std::string_view text) {
    clear_progress();
    if (!has_begun_ && status_.ok()) {
      status_ = print_out(prompt_);
      has_begun_ = status_.ok();
    }
    if (status_.ok()) status_ = print_out(text);
    return status_.ok();
  }
  bool has_begun() const { return has_begun_; }
  const Status& status() const { return status_; }

 private:
  std::string prompt_;
  std::optional<ProgressBar> bar_;
  bool has_begun_ = false;
  Status status_;
};

void print_statistics(const Options& options, const RunStatistics& run) {
  if (options.json) {
    print_err(run_statistics_json(run).dump());
  } else if (!options.quiet) {
    options.model.log->note(run_statistics_line(run));
  }
}

// Whether the text may end where it did: a constraint was met, or there was none.
Result<bool> is_whole(const Options& options, OpenModel& model, const RunStatistics& run,
                      const std::vector<TokenId>& tokens) {
  MF_ASSIGN_OR_RETURN(const OutputConstraint constraint, output_constraint(options.constraint));
  if (constraint.kind == ConstraintKind::kNone) return true;
  if (run.result.reason == FinishReason::kStopToken) return true;
  MF_ASSIGN_OR_RETURN(const auto compiled, model.compile(constraint));
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Matcher> matcher, compiled->start());
  for (const TokenId token : tokens) {
    if (!matcher->consume(token).ok()) return false;
  }
  MF_ASSIGN_OR_RETURN(const Matcher::Next next, matcher->next());
  return next.may_end;
}

CommandOutcome run(const Options& options, bool prompt_given) {
  const std::unique_ptr<InterruptListener> interrupts = listen_for_interrupts();
  MF_ASSIGN_OR_RETURN(const Loaded loaded, load(options, prompt_given, interrupts->token()));
  OpenModel& model = *loaded.session->model();
  Engine& engine = *model.engine;
  MF_ASSIGN_OR_RETURN(auto routes, record_routes(options.model, model));
  TextOutput output(options.quiet ? "" : loaded.prompt, loaded.tokens.size());
  const auto show_progress = [&](int64_t tokens) {
    output.show_progress(tokens);
    return true;
  };
  std::vector<TokenId> told;
  const auto force = [&](const DrawnToken& token) {
    told.push_back(token.token);
    return loaded.reasoning ? loaded.reasoning->after(token) : std::vector<TokenId>();
  };
  RunStatistics statistics{.seed = loaded.seed};
  Status done = loaded.session->generate(
      loaded.tokens,
      {.tokens_max = options.tokens_max,
       .ignore_model_stop_tokens = options.ignore_eos,
       .stop_strings = options.stop_strings,
       .stop = interrupts->token(),
       .force = force,
       .prefill_progress = show_progress,
       .keep_last_token = false},
      [&](std::string_view text) { return output.write(text); }, statistics.result);
  output.clear_progress();
  if (done.ok()) done = finish_route_trace(engine, std::move(routes));
  if (done.ok()) done = engine.save_expert_profile();
  if (done.ok() && !options.prompt_cache.empty()) {
    done = loaded.session->save_file(options.prompt_cache);
  }
  // A text that has begun ends with its line and its statistics, whatever ended it.
  if (done.ok() || output.has_begun()) output.write("\n");
  if (done.ok()) done = output.status();
  if (!output.has_begun()) return done;
  statistics.failed = !done.ok() && done.error().code() != ErrorCode::kCancelled;
  statistics.peak_memory_bytes = peak_resident_bytes();
  print_statistics(options, statistics);
  if (!done.ok()) return done;
  MF_ASSIGN_OR_RETURN(const bool whole, is_whole(options, model, statistics, told));
  CommandOutcome outcome = Status();
  const FinishReason reason = statistics.result.reason;
  const int64_t context = engine.memory_plan().context_length;
  const int64_t longest = engine.spec().max_position_embeddings;
  if (whole) {
    // The JSON says it as well, and whoever reads that expects nothing else.
    if (reason == FinishReason::kContextFull && !options.json) {
      options.model.log->warning(context_full_line(context, longest));
    }
    return outcome;
  }
  print_warning(formatted("the text was cut after {} tokens, before it was whole ({})",
                          statistics.result.generated_tokens, cut_by(reason, context, longest)));
  outcome.exit_status = kExitCut;
  return outcome;
}

}  // namespace

namespace {

void add_generation_options(CommandOptions& command, Options& options) {
  command.group("Text");
  command
      .add("-n,--n-predict,--predict", options.tokens_max, "Tokens to generate; -1: until the end")
      .range(-1, 1e9);
  command
      .add("-r,--reverse-prompt", options.stop_strings,
           "Text that ends the continuation, and is left out; may be repeated")
      .in_help_all();
  command
      .add("--prompt-cache", options.prompt_cache,
           "File with the KV cache of a matching prompt prefix, saved there again at the end")
      .value("FILE")
      .not_empty()
      .in_help_all();
  command
      .add("--reasoning-budget", options.reasoning_budget,
           "Tokens of reasoning, which the model's own marker then closes; -1: no limit")
      .in_help_all();
  command.add("--ignore-eos", options.ignore_eos, "Go on after an end-of-text token").in_help_all();
  command.add("-q,--quiet", options.quiet, "Print only the generated text");
  command
      .add("--json", options.json,
           "Statistics as a line of JSON on standard error, with --quiet too")
      .in_help_all();
}

}  // namespace

Command make_run_command(const CommandContext& context) {
  auto options = std::make_shared<Options>();
  options->model.log = &context.log;
  CommandOptions command(
      "run", "Continue a prompt. Ctrl-C ends the text, a second Ctrl-C ends the program.");
  command.example("moeflux run \"Once upon a time\"");
  command.example("moeflux run -m model.gguf -n 256 --temp 0 -f prompt.txt");
  command.example("moeflux run -m FOLDER -q --json-schema '{}' \"A person as JSON:\"");
  command.group("Text");
  const Option& text = command.add("prompt,-p,--prompt", options->prompt, "Prompt to continue")
                           .value("PROMPT")
                           .command_line_only();
  command.add("-f,--file", options->file, "File with the prompt; '-': standard input")
      .value("FILE")
      .command_line_only();
  add_generation_options(command, *options);
  add_model_options(command, options->model);
  add_route_trace_option(command, options->model);
  add_sampling_options(command, options->sampling);
  add_constraint_options(command, options->constraint);
  return {std::move(command), [options, &text] { return run(*options, text.given()); }};
}

}  // namespace moeflux
