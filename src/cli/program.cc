#include "cli/program.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "cli/commands/command.h"
#include "cli/terminal.h"

namespace moeflux {
namespace {

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

// Behind the program's name, last first, as CLI11 wants them. It knows no options of one dash and
// several letters, which llama.cpp has: they become long ones.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    const std::string_view argument = argv[i];
    arguments.emplace_back(argument == "-ctk"   ? "--cache-type-k"
                           : argument == "-ctv" ? "--cache-type-v"
                                                : argument);
  }
  return arguments;
}

}  // namespace

int run_program(int argc, char** argv) {
  CLI::App program("Runs Mixture-of-Experts language models whose experts are streamed from disk.",
                   "moeflux");
  program.set_version_flag("--version", std::string("moeflux ") + MOEFLUX_VERSION);
  program.require_subcommand(1);
  const std::array<RegisteredCommand, 11> commands = {
      add_run_command(program),      add_logits_command(program),     add_inspect_command(program),
      add_tokenize_command(program), add_perplexity_command(program), add_bench_command(program),
      add_synth_command(program),    add_replay_command(program),     add_pack_command(program),
      add_quantize_command(program), add_plan_command(program)};
  try {  // CLI11 reports by exceptions; they end here
    program.parse(arguments_of(argc, argv));
  } catch (const CLI::ParseError& error) {
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
