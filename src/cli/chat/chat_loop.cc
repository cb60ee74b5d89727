#include "cli/chat/chat_loop.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/format.h"
#include "cli/chat/answer_printer.h"
#include "cli/run_report.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "grammar/answer_grammar.h"
#include "io/file.h"

namespace moeflux {
namespace {

constexpr std::string_view kHelp =
    "/system TEXT    what the model is told before all else (without a text: nothing)\n"
    "/read FILE      ask what a file says\n"
    "/retry          another answer to the last question\n"
    "/undo           forget the last question and its answer\n"
    "/clear          forget the conversation, but not /system\n"
    "/think on|off   reason before answering, where the model can\n"
    "/save FILE      write the conversation\n"
    "/load FILE      go on with a written one\n"
    "/stats          tokens and seconds of the last answer\n"
    "/bye            end, as Ctrl-D does\n"
    "/a/path         and what else no command is called is a text\n"
    "\"\"\"             begins and ends a text of several lines, as \\ at a line's end goes on\n"
    "Ctrl-C          stops an answer\n";

constexpr std::array<std::string_view, 14> kCommands = {"bye",    "exit",  "quit",  "help",  "?",
                                                        "system", "clear", "undo",  "retry", "read",
                                                        "save",   "load",  "think", "stats"};

/// The word behind the slash that `entry` begins with.
std::string_view command_word(std::string_view entry) {
  const size_t space = std::min(entry.find_first_of(" \t\n"), entry.size());
  return entry.substr(1, space - 1);
}

bool is_command(std::string_view word) {
  return std::ranges::find(kCommands, word) != kCommands.end();
}

/// Whether an entry that begins with a slash is a text all the same: a path, a comment, a text of
/// several lines. A mistyped command is none.
bool is_text(std::string_view entry) {
  const std::string_view word = command_word(entry);
  if (is_command(word)) return false;
  const bool is_a_word = !word.empty() && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  return !is_a_word || entry.find('\n') != std::string_view::npos ||
         path_exists(std::string(1, '/').append(word));
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

ChatLoop::ChatLoop(std::shared_ptr<OpenModel> model, std::shared_ptr<const ChatFormat> format,
                   ChatLoopOptions options)
    : model_(std::move(model)), format_(std::move(format)), options_(std::move(options)) {
  talk_.set_system(options_.system);
}

Result<std::unique_ptr<ChatLoop>> ChatLoop::start(std::shared_ptr<OpenModel> model,
                                                  std::shared_ptr<const ChatFormat> format,
                                                  ChatLoopOptions options) {
  std::unique_ptr<ChatLoop> loop(
      new ChatLoop(std::move(model), std::move(format), std::move(options)));
  MF_ASSIGN_OR_RETURN(loop->scheduler_, Scheduler::start(loop->model_, {.active_max = 1}));
  return loop;
}

Status ChatLoop::run(LineEditor& editor, const std::string& first) {
  if (!first.empty()) MF_RETURN_IF_ERROR(ask(first));
  while (true) {
    const std::optional<std::string> entry = read_entry(editor);
    if (!entry) break;
    MF_ASSIGN_OR_RETURN(const bool goes_on, take(*entry));
    if (!goes_on) return {};
  }
  return stdout_is_terminal() ? print_out("\n") : Status();
}

bool ChatLoop::interrupt() {
  const std::lock_guard lock(mutex_);
  if (!running_) return false;
  scheduler_->cancel(*running_);
  return true;
}

// A person's mistake is reported, and the conversation goes on.
Result<bool> ChatLoop::take(const std::string& entry) {
  if (trimmed(entry).empty()) return true;
  Result<bool> goes_on = true;
  if (entry.front() == '/' && !is_text(entry)) {
    const std::string_view word = command_word(entry);
    goes_on = command(word, trimmed(std::string_view(entry).substr(word.size() + 1)));
  } else if (const Status asked = ask(entry); !asked.ok()) {
    goes_on = asked.error();
  }
  // The reader of standard output has left.
  if (goes_on.ok() || goes_on.error().code() == ErrorCode::kCancelled) return goes_on;
  print_error(goes_on.error().message());
  return true;
}

Result<bool> ChatLoop::command(std::string_view name, std::string_view rest) {
  const std::string argument(rest);
  Status done;
  if (name == "bye" || name == "exit" || name == "quit") return false;
  if (name == "help" || name == "?") {
    done = print_out(kHelp);
  } else if (name == "system") {
    talk_.set_system(argument);
  } else if (name == "clear") {
    talk_.clear();
    last_.reset();
  } else if (name == "undo") {
    if (!talk_.undo()) print_note("there is nothing to undo");
  } else if (name == "retry") {
    done = retry();
  } else if (name == "read") {
    MF_ASSIGN_OR_RETURN(std::string text, read_text_input(argument));
    done = ask(std::move(text));
  } else if (name == "save") {
    done = save(argument);
  } else if (name == "load") {
    done = load(argument);
  } else if (name == "think") {
    done = think(rest);
  } else if (name == "stats") {
    print_statistics();
  } else {
    done = make_error(ErrorCode::kInvalidArgument,
                      "no command /{}; /help lists them, and a text may have a space before its /",
                      name);
  }
  if (!done.ok()) return done.error();
  return true;
}

Status ChatLoop::ask(std::string text) {
  talk_.add_user(std::move(text));
  retries_ = 0;
  const Status answered = answer();
  // A question that could not be answered would stand before the next one.
  if (!answered.ok()) talk_.undo();
  return answered;
}

Status ChatLoop::retry() {
  std::optional<std::string> question = talk_.undo();
  if (!question) {
    return make_error(ErrorCode::kInvalidArgument, "there is no question to answer again");
  }
  talk_.add_user(std::move(*question));
  ++retries_;
  return answer();
}

Status ChatLoop::answer() {
  TemplateRequest request{.messages = talk_.messages(), .variables = options_.template_variables};
  if (options_.think) request.variables["enable_thinking"] = *options_.think;
  MF_ASSIGN_OR_RETURN(ChatPrompt prompt, format_->prompt(request, local_time_now()));
  std::shared_ptr<const Constraint> constraint;
  if (options_.constraint.kind != ConstraintKind::kNone) {
    MF_ASSIGN_OR_RETURN(
        const OutputConstraint grammar,
        answer_grammar(format_->output(), format_->tokenizer(), prompt.tail,
                       {.content = options_.constraint, .may_reason = format_->may_reason()}));
    MF_ASSIGN_OR_RETURN(constraint, model_->compile(grammar));
  }
  const auto printer = std::make_shared<AnswerPrinter>(
      format_, AnswerOptions{.prompt_tail = std::move(prompt.tail),
                             .stop_strings = options_.stop_strings,
                             .reasoning_tokens_max = options_.reasoning_tokens_max});
  TextRequest text{.prompt = std::move(prompt.tokens),
                   .sampler = options_.sampler,
                   .tokens_max = options_.tokens_max,
                   .ignore_model_stop_tokens = options_.ignore_stop_tokens,
                   .constraint = std::move(constraint)};
  text.sampler.seed += retries_;
  {
    const std::lock_guard lock(mutex_);
    MF_ASSIGN_OR_RETURN(running_, scheduler_->submit(std::move(text), printer));
  }
  PrintedAnswer answer = printer->wait();
  {
    const std::lock_guard lock(mutex_);
    running_.reset();
  }
  MF_RETURN_IF_ERROR(answer.status);
  last_ = answer.statistics;
  const bool is_cut = note_cut(answer.content);
  talk_.add_answer(std::move(answer.content), std::move(answer.reasoning));
  if (last_->reason == FinishReason::kCancelled) print_note("stopped");
  if (last_->reason == FinishReason::kContextFull) {
    // The warning of a cut has said so.
    const std::string full = context_full_line(context_length(), context_length_max());
    print_note(formatted("{}/undo or /clear make room", is_cut ? "" : full + "; "));
  }
  if (options_.shows_statistics) print_statistics();
  return {};
}

int64_t ChatLoop::context_length() const { return model_->engine->memory_plan().context_length; }
int64_t ChatLoop::context_length_max() const {
  return model_->engine->spec().max_position_embeddings;
}

bool ChatLoop::note_cut(const std::string& content) {
  const FinishReason reason = last_->reason;
  const OutputConstraint& constraint = options_.constraint;
  if (constraint.kind == ConstraintKind::kNone || reason == FinishReason::kStopToken) return false;
  // The last token that was allowed may have been the document's last.
  if (constraint.kind == ConstraintKind::kJsonSchema && parse_json(content, "").ok()) return false;
  was_cut_ = true;
  print_warning(formatted("the answer was cut after {} tokens, before it was whole ({})",
                          last_->generated_tokens,
                          cut_by(reason, context_length(), context_length_max())));
  return true;
}

Status ChatLoop::save(const std::string& path) const {
  if (path.empty()) return make_error(ErrorCode::kInvalidArgument, "/save FILE: no file was named");
  const std::string text = talk_.to_json();
  MF_ASSIGN_OR_RETURN(const auto file, AtomicFileWriter::create(path, FileAccess::kPrivate));
  MF_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

Status ChatLoop::load(const std::string& path) {
  if (path.empty()) return make_error(ErrorCode::kInvalidArgument, "/load FILE: no file was named");
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_input(path));
  MF_ASSIGN_OR_RETURN(talk_, Conversation::parse(text, path));
  last_.reset();
  print_note(formatted("{} questions", talk_.turns()));
  return {};
}

Status ChatLoop::think(std::string_view value) {
  if (value != "on" && value != "off") {
    return make_error(ErrorCode::kInvalidArgument, "/think {}: expected on or off", value);
  }
  options_.think = value == "on";
  const auto& switches = format_->chat_template().capabilities(false).switches;
  for (const std::string& name : switches) {
    if (name == "enable_thinking" || name == "thinking") return {};
  }
  print_note("the template of this model does not say whether to think");
  return {};
}

void ChatLoop::print_statistics() const {
  if (!last_) return print_note("no answer yet");
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const int64_t fresh = last_->prompt_tokens - last_->cached_tokens;
  print_note(
      formatted("prompt {} tokens, {} of them new, {:.1f} tokens/s; answer {} tokens, "
                "{:.1f} tokens/s; context {} of {}",
                last_->prompt_tokens, fresh, rate(fresh, last_->prefill_seconds),
                last_->generated_tokens, rate(last_->generated_tokens, last_->decode_seconds),
                last_->prompt_tokens + last_->generated_tokens, context_length()));
}

}  // namespace moeflux
