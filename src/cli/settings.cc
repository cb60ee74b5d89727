#include "cli/settings.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/nearest.h"
#include "cli/text_input.h"
#include "io/file.h"

namespace moeflux {
namespace {

bool has_option(const CommandOptions& command, const std::string& key) {
  const Option* option = command.find(option_name(key));
  return option != nullptr && option->spec().is_configurable;
}

std::vector<std::string_view> configurable_names(const CommandOptions& command) {
  std::vector<std::string_view> names;
  for (const Option& option : command.options()) {
    if (!option.spec().is_configurable || option.spec().level == HelpLevel::kNone) continue;
    if (option.name().starts_with("--")) names.push_back(std::string_view(option.name()).substr(2));
  }
  return names;
}

Status check_entry(const ConfigFile& file, const ConfigEntry& entry,
                   std::span<const CommandOptions* const> commands) {
  const std::string place = formatted("{}:{}", file.path, entry.line);
  std::vector<std::string_view> names;
  bool has_section = entry.section.empty();
  const std::string section = preset_name(entry.section) ? "serve" : entry.section;
  for (const CommandOptions* command : commands) {
    if (!section.empty() && command->name() != section) continue;
    has_section = true;
    if (has_option(*command, entry.key)) return {};
    for (const std::string_view name : configurable_names(*command)) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  if (!has_section) {
    for (const CommandOptions* command : commands) names.emplace_back(command->name());
    return make_error(ErrorCode::kInvalidArgument, "{}: no command [{}]{}", place, entry.section,
                      did_you_mean(entry.section, names));
  }
  return make_error(ErrorCode::kInvalidArgument, "{}: no option '{}'{}", place, entry.key,
                    did_you_mean(entry.key, names));
}

}  // namespace

std::string option_name(const std::string& key) {
  std::string name = "--" + key;
  std::ranges::replace(name, '_', '-');
  return name;
}

std::optional<std::string> preset_name(const std::string& section) {
  constexpr std::string_view kPrefix = "model.";
  if (!section.starts_with(kPrefix)) return std::nullopt;
  return section.substr(kPrefix.size());
}

std::string variable_name(const Option& option) {
  std::string name = "MOEFLUX_" + option.name().substr(2);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

std::optional<std::string> default_config_path(const ReadVariable& read) {
  for (const auto& [variable, below] :
       {std::pair{"XDG_CONFIG_HOME", "/moeflux"}, {"HOME", "/.config/moeflux"}}) {
    const char* const folder = read(variable);
    if (folder != nullptr && folder[0] == '/') return std::string(folder) + below + "/config.toml";
  }
  return std::nullopt;
}

Result<ConfigFile> read_config_file(const std::optional<std::string>& named,
                                    const ReadVariable& read) {
  const std::optional<std::string> path = named ? named : default_config_path(read);
  if (!path || (!named && !path_exists(*path))) return ConfigFile();
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_input(*path));
  MF_ASSIGN_OR_RETURN(std::vector<ConfigEntry> entries, parse_config(text, *path));
  return ConfigFile{.path = *path, .entries = std::move(entries)};
}

Status check_config(const ConfigFile& file, std::span<const CommandOptions* const> commands) {
  for (const ConfigEntry& entry : file.entries) {
    MF_RETURN_IF_ERROR(check_entry(file, entry, commands));
  }
  return {};
}

std::vector<std::string> unknown_variables(std::span<const std::string> names,
                                           std::span<const CommandOptions* const> commands) {
  constexpr std::string_view kPrefix = "MOEFLUX_";
  constexpr std::string_view kOfTests = "MOEFLUX_TEST_";
  std::vector<std::string> known;
  for (const CommandOptions* command : commands) {
    for (const Option& option : command->options()) {
      if (option.spec().is_configurable && option.name().starts_with("--")) {
        known.push_back(variable_name(option).substr(kPrefix.size()));
      }
    }
  }
  const std::vector<std::string_view> views(known.begin(), known.end());
  std::vector<std::string> lines;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) || name.starts_with(kOfTests)) continue;
    const std::string_view rest = std::string_view(name).substr(kPrefix.size());
    if (std::ranges::find(views, rest) != views.end()) continue;
    const auto nearest = nearest_names(rest, views, 1);
    lines.push_back(formatted("the variable {} sets no option{}", name,
                              nearest.empty()
                                  ? std::string()
                                  : formatted("; did you mean {}{}?", kPrefix, nearest.front())));
  }
  return lines;
}

void give_settings(const ConfigFile& file, const ReadVariable& read, CommandOptions& command) {
  // A section counts more than what holds for all commands: its values come second.
  for (const bool in_section : {false, true}) {
    for (const ConfigEntry& entry : file.entries) {
      if (in_section ? entry.section != command.name() : !entry.section.empty()) continue;
      Option* option = command.find(option_name(entry.key));
      if (option == nullptr || !option->spec().is_configurable) continue;
      const std::string place = formatted("{}:{}: {}", file.path, entry.line, entry.key);
      option->clear(OptionOrigin::kFile);
      for (const std::string& value : entry.values) {
        option->give(value, OptionOrigin::kFile, place);
      }
    }
  }
  for (Option& option : command.options()) {
    if (!option.spec().is_configurable || !option.name().starts_with("--")) continue;
    const std::string name = variable_name(option);
    const char* const value = read(name);
    // An empty one is as good as none, as everywhere in shells.
    if (value != nullptr && *value != '\0') option.give(value, OptionOrigin::kVariable, name);
  }
}

}  // namespace moeflux
