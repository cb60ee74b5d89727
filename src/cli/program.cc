#include "cli/program.h"

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "cli/commands/command.h"
#include "cli/terminal.h"

namespace moeflux {
namespace {

// Options of llama.cpp that ask where weights lie, and what asks for it here.
struct ForeignOption {
  std::string_view name;
  std::string_view ours;
};
constexpr std::string_view kNearCache =
    "--near-cache SIZE says how much of the device's memory experts take (default: what is free), "
    "and --device where all else lies";
constexpr std::string_view kNoNearCache =
    "--near-cache 0 leaves all experts in the host's memory, and --device cpu computes there";
constexpr std::array kForeignOptions = {ForeignOption{"-ngl", kNearCache},
                                        ForeignOption{"--n-gpu-layers", kNearCache},
                                        ForeignOption{"--gpu-layers", kNearCache},
                                        ForeignOption{"-ot", kNearCache},
                                        ForeignOption{"--override-tensor", kNearCache},
                                        ForeignOption{"-ncmoe", kNearCache},
                                        ForeignOption{"--n-cpu-moe", kNearCache},
                                        ForeignOption{"-cmoe", kNoNearCache},
                                        ForeignOption{"--cpu-moe", kNoNearCache}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kShortNames = {
    {{"-ctk", "--cache-type-k"},
     {"-ctv", "--cache-type-v"},
     {"-sys", "--system-prompt"},
     {"-cnv", "--conversation"}}};

// The line for the first of them among the arguments; empty without one.
std::string foreign_option_line(std::span<char*> arguments) {
  for (const std::string_view argument : arguments) {
    for (const ForeignOption& option : kForeignOptions) {
      if (argument == option.name) return formatted("no option {}: {}", argument, option.ours);
    }
  }
  return {};
}

// CLI11's message may span lines (it appends a pointer to --help); ours is one.
int report_usage_error(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
  const CLI::App* app = &program;
  for (const CLI::App* sub : program.get_subcommands()) app = sub;
  std::string command = "moeflux";
  if (app != &program) command += " " + app->get_name();
  print_error(formatted("{} (see {} --help)", error.what(), command));
  return 2;
}

// CLI11 knows no options of one dash and several letters, which llama.cpp has: these become long.
std::string_view long_name(std::string_view argument) {
  for (const auto& [name, long_name] : kShortNames) {
    if (argument == name) return long_name;
  }
  return argument;
}

// Behind the program's name, last first, as CLI11 wants them. llama.cpp's `run -cnv`, and a system
// prompt, which a text has not, mean a conversation.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments;
  bool converses = false;
  for (int i = argc - 1; i > 0; --i) {
    const std::string_view argument = long_name(argv[i]);
    converses = converses || argument == "--conversation" || argument == "--system-prompt";
    if (argument != "--conversation") arguments.emplace_back(argument);
  }
  if (converses && argc > 1 && argv[1] == std::string_view("run")) arguments.back() = "chat";
  return arguments;
}

}  // namespace

int run_program(int argc, char** argv) {
  CLI::App program("Runs Mixture-of-Experts language models whose experts are streamed from disk.",
                   "moeflux");
  program.set_version_flag("--version", std::string("moeflux ") + MOEFLUX_VERSION);
  program.require_subcommand(1);
  const std::array<RegisteredCommand, 15> commands = {
      add_run_command(program),        add_chat_command(program),    add_serve_command(program),
      add_logits_command(program),     add_inspect_command(program), add_tokenize_command(program),
      add_perplexity_command(program), add_bench_command(program),   add_synth_command(program),
      add_replay_command(program),     add_pack_command(program),    add_quantize_command(program),
      add_plan_command(program),       add_devices_command(program), add_template_command(program)};
  try {  // CLI11 reports by exceptions; they end here
    program.parse(arguments_of(argc, argv));
  } catch (const CLI::ParseError& error) {
    const std::string foreign = foreign_option_line({argv, static_cast<size_t>(argc)});
    if (error.get_exit_code() != 0 && !foreign.empty()) {
      print_error(foreign);
      return 2;
    }
    return report_usage_error(program, error);
  }
  for (const RegisteredCommand& command : commands) {
    if (!command.app->parsed()) continue;
    const Status status = command.run();
    // kCancelled: the reader of standard output has left, as `head` does.
    if (status.ok() || status.error().code() == ErrorCode::kCancelled) return 0;
    print_error(status.error().message());
    return 1;
  }
  return 0;
}

}  // namespace moeflux
