// moeflux devices: what there is to compute on, and what auto takes.
#include <memory>
#include <string>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/commands/command.h"
#include "cli/terminal.h"
#include "devices/open_device.h"

namespace moeflux {
namespace devices_command {
namespace {

Status run(bool as_json) {
  const DeviceChoice choice = choose_device({.name = "auto"});
  Json list = Json::array();
  std::string text;
  for (const ListedDevice& device : list_devices()) {
    const bool is_chosen = device.name == choice.name;
    list.push_back({{"name", device.name},
                    {"there", device.is_there},
                    {"description", device.description},
                    {"free_bytes", device.free_bytes.value_or(0)},
                    {"auto", is_chosen}});
    text += formatted("{:<10} {}{}{}{}\n", device.name,
                      device.is_there ? "" : "not there: ", device.description,
                      device.free_bytes ? formatted(", {} free", format_bytes(*device.free_bytes))
                                        : std::string(),
                      is_chosen ? "  <- auto" : "");
  }
  return print_out(as_json ? list.dump(2) + "\n" : text);
}

}  // namespace
}  // namespace devices_command

Command make_devices_command(const CommandContext& /*context*/) {
  auto as_json = std::make_shared<bool>(false);
  CommandOptions command("devices",
                         "List the devices of this machine, and the one of --device auto.");
  command.example("moeflux devices");
  command.example("moeflux devices --json");
  command.group("Output");
  command.add("--json", *as_json, "Print JSON");
  return {std::move(command), [as_json] { return devices_command::run(*as_json); }};
}

}  // namespace moeflux
