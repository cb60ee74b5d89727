// A command of the program: how it registers itself and runs.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "cli/cli11.h"

namespace moeflux {

/// Runs after parsing; an error becomes one line on standard error and exit status 1.
using CommandAction = std::function<Status()>;

struct RegisteredCommand {
  CLI::App* app = nullptr;
  CommandAction run;
};

RegisteredCommand add_run_command(CLI::App& program);
RegisteredCommand add_chat_command(CLI::App& program);
RegisteredCommand add_serve_command(CLI::App& program);
RegisteredCommand add_logits_command(CLI::App& program);
RegisteredCommand add_inspect_command(CLI::App& program);
RegisteredCommand add_tokenize_command(CLI::App& program);
RegisteredCommand add_template_command(CLI::App& program);
RegisteredCommand add_perplexity_command(CLI::App& program);
RegisteredCommand add_bench_command(CLI::App& program);
RegisteredCommand add_synth_command(CLI::App& program);
RegisteredCommand add_replay_command(CLI::App& program);
RegisteredCommand add_pack_command(CLI::App& program);
RegisteredCommand add_quantize_command(CLI::App& program);
RegisteredCommand add_plan_command(CLI::App& program);
RegisteredCommand add_devices_command(CLI::App& program);

}  // namespace moeflux
