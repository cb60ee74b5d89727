#include "cli/help.h"

#include <algorithm>
#include <vector>

#include "base/format.h"

namespace moeflux {
namespace {

constexpr size_t kTextColumn = 28;
constexpr size_t kTextColumnNarrow = 6;  // below the names
constexpr size_t kNarrow = 64;

bool is_shown(const OptionSpec& option, const HelpStyle& style) {
  return option.level == HelpLevel::kShort || (style.shows_all && option.level == HelpLevel::kAll);
}

std::string spaces(size_t count) { return std::string(count, ' '); }

std::string render_row(std::string_view heading, std::string_view help, const HelpStyle& style) {
  const size_t column = style.width < kNarrow ? kTextColumnNarrow : kTextColumn;
  const std::string text = wrapped(help, style.width, column);
  const size_t used = heading.size() + 2;
  if (used > style.width) {
    return formatted("  {}\n{}{}\n", wrapped(heading, style.width, 4), spaces(column), text);
  }
  if (used + 2 > column) return formatted("  {}\n{}{}\n", heading, spaces(column), text);
  return formatted("  {}{}{}\n", heading, spaces(column - used), text);
}

std::string render_option(const OptionSpec& option, const HelpStyle& style) {
  return render_row(option_heading(option, style.shows_all), option_text(option), style);
}

// Groups in the order in which they first appear.
std::vector<std::string> groups_of(const CommandOptions& command, const HelpStyle& style) {
  std::vector<std::string> groups;
  for (const Option& option : command.options()) {
    if (!is_shown(option.spec(), style)) continue;
    if (std::ranges::find(groups, option.spec().group) == groups.end()) {
      groups.push_back(option.spec().group);
    }
  }
  // Options that all commands have are in nobody's way at the end.
  const auto other = std::ranges::find(groups, "Other");
  if (other != groups.end()) std::rotate(other, other + 1, groups.end());
  return groups;
}

}  // namespace

std::string wrapped(std::string_view text, size_t width, size_t indent) {
  std::string result;
  size_t column = indent;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (column > indent && column + 1 + word.size() > width) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result;
}

std::string option_heading(const OptionSpec& option, bool with_all_names) {
  std::string names;
  int short_names = 0;
  int long_names = 0;
  for (const std::string& name : option.names) {
    if (!name.starts_with('-')) continue;
    const bool is_first = name.starts_with("--") ? long_names++ == 0 : short_names++ == 0;
    if (is_first || with_all_names) names += (names.empty() ? "" : ", ") + name;
  }
  if (names.empty()) return option.value_name;
  return option.is_flag() ? names : names + " " + option.value_name;
}

std::string option_text(const OptionSpec& option) {
  if (option.default_text.empty()) return option.help;
  return formatted("{} (default: {})", option.help, option.default_text);
}

std::string usage_line(const CommandOptions& command) {
  std::string line = "moeflux";
  if (!command.name().empty()) line += " " + command.name();
  line += " [OPTIONS]";
  for (const Option& option : command.options()) {
    if (!option.spec().is_positional) continue;
    line += formatted(" [{}{}]", option.spec().value_name, option.spec().takes_all ? "..." : "");
  }
  return line;
}

std::string render_help(const CommandOptions& command, const HelpStyle& style) {
  std::string text = formatted("{}\n{}\n", wrapped("Usage: " + usage_line(command), style.width, 2),
                               wrapped(command.summary(), style.width, 0));
  if (!command.examples().empty()) text += "\nExamples:\n";
  for (const std::string& example : command.examples()) {
    text += formatted("  {}\n", wrapped(example, style.width, 4));
  }
  for (const std::string& group : groups_of(command, style)) {
    text += formatted("\n{}\n", wrapped(group + ":", style.width, 2));
    for (const Option& option : command.options()) {
      const OptionSpec& spec = option.spec();
      if (spec.group == group && is_shown(spec, style)) text += render_option(spec, style);
    }
  }
  if (!style.shows_all) return text;
  for (const HelpList& list : command.lists()) {
    text += formatted("\n{}", render_list(list, style));
  }
  return text;
}

std::string render_list(const HelpList& list, const HelpStyle& style) {
  std::string text = wrapped(list.title + ":", style.width, 0) + "\n";
  for (const auto& [heading, help] : list.rows) text += render_row(heading, help, style);
  return text;
}

}  // namespace moeflux
