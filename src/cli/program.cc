#include "cli/program.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/nearest.h"
#include "cli/command_line.h"
#include "cli/commands/command.h"
#include "cli/completions.h"
#include "cli/config_report.h"
#include "cli/help.h"
#include "cli/settings.h"
#include "cli/terminal.h"

// POSIX has it and no header of it.
extern "C" char** environ;

namespace moeflux {
namespace {

struct CommandGroup {
  std::string_view title;
  std::vector<Command (*)(const CommandContext&)> make;
};

const std::vector<CommandGroup>& command_groups() {
  static const std::vector<CommandGroup> kGroups = {
      {"Generate", {make_run_command, make_chat_command, make_serve_command, make_embed_command}},
      {"Get and write models",
       {make_pull_command, make_list_command, make_rm_command, make_pack_command,
        make_quantize_command, make_synth_command}},
      {"Look at models",
       {make_plan_command, make_inspect_command, make_devices_command, make_tokenize_command,
        make_template_command}},
      {"Measure",
       {make_bench_command, make_perplexity_command, make_logits_command, make_replay_command}}};
  return kGroups;
}

constexpr std::string_view kSummary =
    "Runs Mixture-of-Experts language models whose experts are streamed from the drive.";
constexpr std::string_view kMore =
    "moeflux COMMAND --help lists a command's options, --help-all all; --version is the version.";
constexpr std::array<std::string_view, 3> kExamples = {
    "moeflux run 'Once upon a time'", "moeflux chat -hf OWNER/MODEL-GGUF:Q4_K_M",
    "moeflux plan -m FILE.gguf --ram 8G --vram 12G"};
constexpr std::string_view kVersion = MOEFLUX_VERSION;

/// The options that every command has besides its own.
struct CommonOptions {
  std::optional<std::string> config;
  std::string log_level = "info";
  bool help = false;
  bool help_all = false;
  bool quiet = false;
  const HelpList* list = nullptr;  // to print in place of the command's work
};

void add_common_options(CommandOptions& command, CommonOptions& common) {
  command.group("Other");
  command
      .add("--config", common.config, "File of settings (default: ~/.config/moeflux/config.toml)")
      .value("FILE")
      .not_empty();
  command.add("--log-level", common.log_level, "Notes on standard error: error, warn, info, debug")
      .value("LEVEL")
      .choices({"error", "warn", "info", "debug"});
  if (command.find("--quiet") == nullptr) {
    command.add("-q,--quiet", common.quiet, "Warnings and errors alone on standard error, no notes")
        .in_help_all();
  }
  command.add("-h,--help", common.help, "Print this help").command_line_only();
  command.add("--help-all", common.help_all, "Print the help of all options").command_line_only();
}

LogLevel log_level_of(const std::string& name) {
  if (name == "error") return LogLevel::kError;
  if (name == "warn") return LogLevel::kWarning;
  return name == "debug" ? LogLevel::kDebug : LogLevel::kInfo;
}

// The list that an option's value "help" asks for, or null.
const HelpList* wanted_list(const CommandOptions& command) {
  for (const HelpList& list : command.lists()) {
    const Option* option = list.option.empty() ? nullptr : command.find(list.option);
    if (option == nullptr) continue;
    if (std::ranges::find(option->values(), "help") != option->values().end()) return &list;
  }
  return nullptr;
}

std::vector<std::string> names_of_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

const char* read_variable(const std::string& name) { return std::getenv(name.c_str()); }

/// The commands and what is common to them, for one run.
class Program {
 public:
  Program() {
    for (const CommandGroup& group : command_groups()) {
      for (const auto make : group.make) {
        add(make(context_));
      }
    }
    add(make_config_command());
    add(make_completion_command());
    add(make_man_command());
  }

  int run(std::vector<std::string> arguments);

 private:
  void add(Command command) {
    commands_.push_back(std::move(command));
    add_common_options(commands_.back().options, common_);
  }
  Command make_config_command();
  Command make_completion_command();
  Command make_man_command();
  Status print_config(const std::string& name);
  Status print_man(const std::string& page, bool lists);
  std::vector<const CommandOptions*> all_options() const;
  Result<ConfigFile> read_config(const CommandOptions& command) const;

  int run_command(Command& command, std::span<const std::string> arguments);
  Status read_options(Command& command, std::span<const std::string> arguments);
  int help_of(std::span<const std::string> arguments) const;
  int unknown_command(const std::string& name) const;
  Command* find(std::string_view name);
  const Command* find(std::string_view name) const;
  std::string help() const;

  CommandContext context_;
  CommonOptions common_;
  std::deque<Command> commands_;
};

int usage_error(std::string_view message, std::string_view command = {}) {
  const std::string program = command.empty() ? "moeflux" : formatted("moeflux {}", command);
  print_error(formatted("{} (see {} --help)", message, program));
  return kExitUsage;
}

int print_text(std::string_view text) {
  const Status printed = print_out(text);
  if (printed.ok() || printed.error().code() == ErrorCode::kCancelled) return kExitSuccess;
  print_error(printed.error().message());
  return kExitFailure;
}

size_t help_width() { return std::min(kHelpWidth, stdout_columns()); }

// llama.cpp's `run -cnv`, and a system prompt, which a plain text has not, mean a conversation.
void make_conversation(std::vector<std::string>& arguments) {
  constexpr std::array<std::string_view, 5> kSwitches = {"-cnv", "--conversation", "-i",
                                                         "--interactive", "-if"};
  const auto is_switch = [&](const std::string& argument) {
    return std::ranges::find(kSwitches, argument) != kSwitches.end();
  };
  bool converses = std::erase_if(arguments, is_switch) > 0;
  for (const std::string& argument : arguments) {
    converses = converses || argument == "-sys" || argument == "--system-prompt";
  }
  if (converses && arguments.front() == "run") arguments.front() = "chat";
}

Command* Program::find(std::string_view name) {
  return const_cast<Command*>(std::as_const(*this).find(name));
}
const Command* Program::find(std::string_view name) const {
  const auto found = std::ranges::find_if(
      commands_, [&](const Command& command) { return command.options.name() == name; });
  return found == commands_.end() ? nullptr : &*found;
}

std::string Program::help() const {
  const size_t width = help_width();
  std::string text =
      formatted("{}\n{}\n{}\n\nExamples:\n", wrapped("Usage: moeflux COMMAND [OPTIONS]", width, 2),
                wrapped(kSummary, width, 0), wrapped(kMore, width, 0));
  for (const auto& example : kExamples) text += formatted("  {}\n", wrapped(example, width, 4));
  constexpr size_t kColumn = 16;
  const auto row = [&](std::string_view name, std::string_view summary) {
    return formatted("  {:<14}{}\n", name, wrapped(summary, width, kColumn));
  };
  size_t at = 0;
  for (const CommandGroup& group : command_groups()) {
    text += formatted("\n{}:\n", group.title);
    for (size_t i = 0; i < group.make.size(); ++i, ++at) {
      text += row(commands_[at].options.name(), commands_[at].options.summary());
    }
  }
  text += "\nOther:\n";
  for (; at < commands_.size(); ++at) {
    text += row(commands_[at].options.name(), commands_[at].options.summary());
  }
  return text;
}

int Program::unknown_command(const std::string& name) const {
  std::vector<std::string_view> names = {"help", "version"};
  for (const Command& command : commands_) names.emplace_back(command.options.name());
  return usage_error(formatted("no command '{}'{}", name, did_you_mean(name, names)));
}

int Program::help_of(std::span<const std::string> arguments) const {
  if (arguments.empty()) return print_text(help());
  const std::string& name = arguments.front();
  // Both have no options of their own.
  if (name == "help" || name == "version" || name.starts_with('-')) return print_text(help());
  const Command* command = find(name);
  if (command == nullptr) return unknown_command(name);
  return print_text(render_help(command->options, {.width = help_width()}));
}

Status Program::read_options(Command& command, std::span<const std::string> arguments) {
  MF_ASSIGN_OR_RETURN(const ParsedArguments parsed, parse_arguments(command.options, arguments));
  if (command.options.find("--help")->given() || command.options.find("--help-all")->given()) {
    common_.help = true;
    common_.help_all = command.options.find("--help-all")->given();
    return {};
  }
  common_.list = wanted_list(command.options);
  if (common_.list != nullptr) return {};
  MF_ASSIGN_OR_RETURN(context_.config, read_config(command.options));
  give_settings(context_.config, read_variable, command.options);
  MF_RETURN_IF_ERROR(apply_options(command.options));
  const LogLevel level = log_level_of(common_.log_level);
  context_.log.set_level(common_.quiet ? std::min(level, LogLevel::kWarning) : level);
  for (const std::string& line : unknown_variables(names_of_variables(), all_options())) {
    context_.log.warning(line);
  }
  for (const std::string& note : parsed.notes) context_.log.note(note);
  return {};
}

std::vector<const CommandOptions*> Program::all_options() const {
  std::vector<const CommandOptions*> all;
  for (const Command& command : commands_) all.push_back(&command.options);
  return all;
}

// The file that --config or its variable names, or the default one.
Result<ConfigFile> Program::read_config(const CommandOptions& command) const {
  const Option* named = command.find("--config");
  const char* const variable = read_variable("MOEFLUX_CONFIG");
  std::optional<std::string> path;
  if (named->given()) {
    path = named->values().back();
  } else if (variable != nullptr && *variable != '\0') {
    path = variable;
  }
  MF_ASSIGN_OR_RETURN(ConfigFile file, read_config_file(path, read_variable));
  MF_RETURN_IF_ERROR(check_config(file, all_options()));
  return file;
}

Command Program::make_config_command() {
  auto name = std::make_shared<std::string>();
  CommandOptions options("config", "Show the settings that hold, and where each comes from.");
  options.example("moeflux config");
  options.example("moeflux config serve");
  options.group("Settings");
  options.add("command", *name, "Command to show all settings of").value("COMMAND");
  return {std::move(options), [this, name] { return print_config(*name); }};
}

Status Program::print_config(const std::string& name) {
  if (!name.empty() && find(name) == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "no command '{}'", name);
  }
  MF_ASSIGN_OR_RETURN(const ConfigFile file, read_config(find("config")->options));
  const std::optional<std::string> path = default_config_path(read_variable);
  std::string text = !file.path.empty() ? formatted("# settings of {}\n", file.path)
                     : path             ? formatted("# {} is not there\n", *path)
                                        : std::string("# no home folder, no file of settings\n");
  for (Command& command : commands_) {
    if (!name.empty() && command.options.name() != name) continue;
    give_settings(file, read_variable, command.options);
    for (const Option& option : command.options.options()) MF_RETURN_IF_ERROR(option.apply());
    text += config_report(command.options, !name.empty());
  }
  return print_out(text);
}

Command Program::make_completion_command() {
  auto shell = std::make_shared<std::string>();
  CommandOptions options("completion", "Print the completions of a shell: bash, zsh or fish.");
  options.example("source <(moeflux completion bash)");
  options.example("moeflux completion fish > ~/.config/fish/completions/moeflux.fish");
  options.group("Shell");
  options.add("shell", *shell, "bash, zsh or fish").value("SHELL").required();
  return {std::move(options), [this, shell]() -> Status {
            MF_ASSIGN_OR_RETURN(const std::string script, completion_script(*shell, all_options()));
            return print_out(script);
          }};
}

Command Program::make_man_command() {
  auto page = std::make_shared<std::string>();
  auto lists = std::make_shared<bool>(false);
  CommandOptions options("man", "Print the manual page of the program or of a command, as roff.");
  options.example("moeflux man run | man -l -");
  options.group("Page");
  options.add("page", *page, "Command, or its page's name").value("COMMAND");
  options.add("--list", *lists, "Print the names of all pages").command_line_only();
  return {std::move(options), [this, page, lists] { return print_man(*page, *lists); }};
}

Status Program::print_man(const std::string& page, bool lists) {
  if (lists) {
    std::string names = "moeflux\n";
    for (const Command& command : commands_) {
      names += formatted("moeflux-{}\n", command.options.name());
    }
    return print_out(names);
  }
  if (page.empty() || page == "moeflux") {
    return print_out(man_page(kSummary, kVersion, all_options()));
  }
  constexpr std::string_view kPrefix = "moeflux-";
  const Command* command = find(page.starts_with(kPrefix) ? page.substr(kPrefix.size()) : page);
  if (command == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "no command '{}'", page);
  }
  return print_out(man_page(command->options, kVersion));
}

int Program::run_command(Command& command, std::span<const std::string> arguments) {
  const Status read = read_options(command, arguments);
  if (!read.ok()) {
    const bool is_usage = read.error().code() == ErrorCode::kInvalidArgument;
    if (is_usage) return usage_error(read.error().message(), command.options.name());
    print_error(read.error().message());
    return kExitFailure;
  }
  if (common_.help) {
    return print_text(
        render_help(command.options, {.width = help_width(), .shows_all = common_.help_all}));
  }
  if (common_.list != nullptr) {
    return print_text(render_list(*common_.list, {.width = stdout_columns()}));
  }
  const CommandOutcome outcome = command.run();
  if (outcome.status.ok()) return outcome.exit_status;
  // kCancelled: the reader of standard output has left, as `head` does.
  if (outcome.status.error().code() == ErrorCode::kCancelled) return kExitSuccess;
  print_error(outcome.status.error().message());
  return kExitFailure;
}

int Program::run(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    print_err(std::string_view(help()).substr(0, help().size() - 1));
    return kExitUsage;
  }
  if (arguments.front() == "run" || arguments.front() == "chat") make_conversation(arguments);
  const std::string name = arguments.front();
  const std::span<const std::string> rest = std::span(arguments).subspan(1);
  if (name == "version" || name == "-v" || name == "--version")
    return print_text(formatted("moeflux {}\n", kVersion));
  if (name == "help" || name == "-h" || name == "--help" || name == "--help-all") {
    return help_of(rest);
  }
  if (name.starts_with('-')) {
    return usage_error(
        formatted("no command before {}; moeflux run {} ... continues a prompt, "
                  "moeflux chat converses",
                  name, name));
  }
  Command* const command = find(name);
  return command == nullptr ? unknown_command(name) : run_command(*command, rest);
}

}  // namespace

int run_program(int argc, char** argv) {
  try {
    return Program().run(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const std::system_error& problem) {
    // Threads of the standard library can only throw.
    print_error(formatted("cannot start a thread: {} (ulimit -u, or what a container may have)",
                          problem.code().message()));
  }
  return kExitFailure;
}

}  // namespace moeflux
