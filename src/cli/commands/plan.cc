// moeflux plan: how much memory a model takes and how fast it will be, here or on a machine that is
// described, and what limits it. Reads headers or a config.json, no weights.
#include <memory>
#include <optional>
#include <string>

#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/plan/planning.h"
#include "cli/terminal.h"

namespace moeflux {
namespace {

void add_machine_options(CommandOptions& command, PlanOptions& options) {
  const auto add_speed = [&](const char* name, std::optional<double>& speed, const char* help) {
    command.add(name, speed, help).value("RATE").range(1e-3, 1e6);
  };
  command.group("Machine (default: this one)");
  command.add_size("--ram", options.memory, "Host memory to use, like 12G (default: what is free)");
  add_speed("--drive", options.drive_gb,
            "GB/s of reads of whole experts (default: measured on the model's folder)");
  add_speed("--memory-bandwidth", options.memory_gb, "GB/s of host memory (default: measured)");
  add_speed("--arithmetic", options.arithmetic_g,
            "Billions of multiply-adds a second (default: measured; with --vram derived from the "
            "GPU's memory bandwidth)");
  command.add_sizes("--vram", options.device_memory,
                    "GPU memory, like 12G, of two cards 8G,3G (default: the GPU here)");
  add_speed("--vram-bandwidth", options.device_memory_gb,
            "GB/s of GPU memory, a tenth below the data sheet (default: 400)");
  add_speed("--pcie", options.bus_gb,
            "GB/s of copies between host and GPU: 25 for PCIe 4 x16, 50 for PCIe 5, half of it for "
            "x8 (default: measured on a GPU that is here, else 25)");
}

}  // namespace

Command make_plan_command(const CommandContext& context) {
  auto options = std::make_shared<PlanOptions>();
  options->model.log = &context.log;
  CommandOptions command(
      "plan", "Predict a model's memory and speed, here or on a machine that you describe.");
  command.example("moeflux plan --like qwen3-30b-a3b");
  command.example("moeflux plan --like qwen3-30b-a3b --ram 16G --drive 3.5");
  command.example("moeflux plan -m model.gguf --vram 12G -c 32768");
  command.example("moeflux plan --like qwen3.6-35b-a3b --type IQ3_S --vram 12G");
  command.group("Model");
  command
      .add("--like", options->like,
           "Published model by name, without its files (see moeflux synth --list)")
      .value("NAME")
      .not_empty();
  command
      .add("--type", options->type,
           "Type of a GGUF file of that model, like IQ3_S (default: affine groups of 4 bits)")
      .value("TYPE")
      .not_empty();
  command
      .add("--assume-bits", options->assume_bits,
           "Bits of a weight, where there is only a config.json: 2, 3, 4, 5, 6 or 8")
      .choices({"2", "3", "4", "5", "6", "8"})
      .in_help_all();
  add_machine_options(command, *options);
  command.group("Output");
  command.add("--json", options->json, "Print JSON");
  add_model_options(command, options->model);
  return {std::move(command), [options]() -> Status {
            MF_ASSIGN_OR_RETURN(const std::string text, plan_on_machine(*options));
            return print_out(text);
          }};
}

}  // namespace moeflux
