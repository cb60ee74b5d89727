// Where options come from besides the command line: variables MOEFLUX_<OPTION>, and a
// configuration file. A command line counts more than a variable, and that more than a file.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/config_file.h"
#include "cli/options.h"

namespace moeflux {

/// A variable of the environment, or null.
using ReadVariable = std::function<const char*(const std::string& name)>;

/// "MOEFLUX_CTX_SIZE" of --ctx-size.
std::string variable_name(const Option& option);

/// The file without --config: $XDG_CONFIG_HOME/moeflux/config.toml, or below ~/.config. None
/// without a home.
std::optional<std::string> default_config_path(const ReadVariable& read);

struct ConfigFile {
  std::string path;  // empty: none
  std::vector<ConfigEntry> entries;
};

/// A file that was named has to be there; the default one may be absent.
Result<ConfigFile> read_config_file(const std::optional<std::string>& named,
                                    const ReadVariable& read);

/// "--ctx-size" of "ctx_size".
std::string option_name(const std::string& key);
/// The name of a section "model.NAME", a preset of moeflux serve.
std::optional<std::string> preset_name(const std::string& section);

/// Fails for sections that are not commands, and for keys that the command, or above all sections
/// every command, lacks. Presets have options of serve.
Status check_config(const ConfigFile& file, std::span<const CommandOptions* const> commands);

/// A line for each of the environment's variables MOEFLUX_... that sets no option of any command,
/// naming the nearest. MOEFLUX_TEST_... are for tests.
std::vector<std::string> unknown_variables(std::span<const std::string> names,
                                           std::span<const CommandOptions* const> commands);

/// Gives a command's options what the file and the variables say.
void give_settings(const ConfigFile& file, const ReadVariable& read, CommandOptions& command);

}  // namespace moeflux
