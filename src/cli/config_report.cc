#include "cli/config_report.h"

#include <string_view>

#include "base/format.h"

namespace moeflux {
namespace {

bool is_bare_value(const Option& option, std::string_view value) {
  if (option.spec().is_flag()) return true;
  const size_t begin = value.starts_with('-') ? 1 : 0;
  return value.size() > begin &&
         value.find_first_not_of("0123456789.", begin) == std::string_view::npos;
}

std::string value_text(const Option& option, std::string_view value) {
  if (option.spec().is_secret) return "\"(hidden)\"";
  if (is_bare_value(option, value)) return std::string(value);
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return formatted("\"{}\"", text);
}

std::string values_text(const Option& option) {
  if (option.values().size() == 1) return value_text(option, option.values().front());
  std::string text;
  for (const std::string& value : option.values()) {
    text += (text.empty() ? "" : ", ") + value_text(option, value);
  }
  return formatted("[{}]", text);
}

// The file and its line, or the variable.
std::string origin_text(const Option& option) {
  const std::string& place = option.place();
  if (option.origin() == OptionOrigin::kVariable) return place;
  return place.substr(0, place.rfind(": "));
}

}  // namespace

std::string config_report(const CommandOptions& command, bool all) {
  std::string text;
  for (const Option& option : command.options()) {
    if (!option.spec().is_configurable || !option.name().starts_with("--")) continue;
    const std::string key = option.name().substr(2);
    if (option.origin() == OptionOrigin::kCommandLine) continue;
    if (option.given()) {
      text += formatted("{} = {}  # {}\n", key, values_text(option), origin_text(option));
    } else if (all && option.spec().level != HelpLevel::kNone) {
      const std::string& shown = option.spec().default_text;
      text +=
          formatted("# {} = {}\n", key, shown.empty() ? "(default)" : value_text(option, shown));
    }
  }
  return text.empty() ? text : formatted("[{}]\n{}", command.name(), text);
}

}  // namespace moeflux
