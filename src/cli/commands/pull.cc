// moeflux pull: a model of a hub into the cache that huggingface_hub has, by its name.
#include <memory>
#include <string>

#include "cli/commands/command.h"
#include "cli/hub_models.h"
#include "cli/terminal.h"
#include "io/interrupt.h"

namespace moeflux {

Command make_pull_command(const CommandContext& context) {
  auto options = std::make_shared<PullOptions>();
  const Log* const log = &context.log;
  CommandOptions command("pull", "Download a model by its name; what has come stays after Ctrl-C.");
  command.example("moeflux pull unsloth/NAME-GGUF:Q4_K_M");
  command.example("moeflux pull ORG/NAME");
  command.example("moeflux run -hf ORG/NAME:Q4_K_M \"Once upon a time\"");
  command.group("Model");
  command
      .add("name", options->name,
           "ORG/NAME, with :QUANT like Q4_K_M or :FILE where there are several")
      .value("NAME")
      .command_line_only()
      .not_empty()
      .required();
  command.add("--revision", options->revision, "Branch, tag or commit").value("NAME").not_empty();
  command.group("Transfer");
  command.add("--connections", options->connections, "Requests at a time")
      .range(1, 64)
      .in_help_all();
  command.add_size("--piece", options->piece, "Bytes of a request (default: 64M)").hidden();
  return {std::move(command), [options, log]() -> CommandOutcome {
            const auto interrupts = listen_for_interrupts();
            MF_ASSIGN_OR_RETURN(const std::string path,
                                pull_model(*options, *log, interrupts->token()));
            return print_out(path + "\n");
          }};
}

}  // namespace moeflux
