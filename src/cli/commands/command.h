// A command of the program: its options and what it does.
#pragma once

#include <functional>
#include <utility>

#include "base/result.h"
#include "cli/options.h"
#include "cli/settings.h"
#include "cli/terminal.h"

namespace moeflux {

/// Statuses of the program.
constexpr int kExitSuccess = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitCut = 3;  // output that had to be whole ended before it was

/// How a command ended: an error becomes one line on standard error.
struct CommandOutcome {
  CommandOutcome(Status ended)  // NOLINT: most commands have nothing else to tell
      : status(std::move(ended)) {}
  CommandOutcome(Error error) : status(std::move(error)) {}  // NOLINT: as a Status

  Status status;
  int exit_status = kExitSuccess;  // where there is no error
};

struct Command {
  CommandOptions options;
  std::function<CommandOutcome()> run;  // once the options are set
};

/// The parts that commands share with the program. Outlives them.
struct CommandContext {
  // Once the options are set:
  Log log;            // of --log-level
  ConfigFile config;  // of --config
};

Command make_run_command(const CommandContext& context);
Command make_chat_command(const CommandContext& context);
Command make_serve_command(const CommandContext& context);
Command make_embed_command(const CommandContext& context);
Command make_logits_command(const CommandContext& context);
Command make_inspect_command(const CommandContext& context);
Command make_tokenize_command(const CommandContext& context);
Command make_template_command(const CommandContext& context);
Command make_perplexity_command(const CommandContext& context);
Command make_bench_command(const CommandContext& context);
Command make_synth_command(const CommandContext& context);
Command make_replay_command(const CommandContext& context);
Command make_pack_command(const CommandContext& context);
Command make_quantize_command(const CommandContext& context);
Command make_plan_command(const CommandContext& context);
Command make_devices_command(const CommandContext& context);
Command make_pull_command(const CommandContext& context);
Command make_list_command(const CommandContext& context);
Command make_rm_command(const CommandContext& context);

}  // namespace moeflux
