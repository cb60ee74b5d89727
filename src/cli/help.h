// The texts of --help and --help-all: grouped, wrapped to a width, with examples.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cli/options.h"

namespace moeflux {

constexpr size_t kHelpWidth = 100;

struct HelpStyle {
  size_t width = kHelpWidth;
  bool shows_all = false;
};

std::string render_help(const CommandOptions& command, const HelpStyle& style);

/// A list by itself.
std::string render_list(const HelpList& list, const HelpStyle& style);

/// "-m, --model PATH": the first short and the first long name, or all.
std::string option_heading(const OptionSpec& option, bool with_all_names);
/// Its help with its default behind it.
std::string option_text(const OptionSpec& option);
/// "moeflux run [OPTIONS] [PROMPT]".
std::string usage_line(const CommandOptions& command);

/// Lines of at most `width` columns, all but the first behind `indent` spaces; no line ends with a
/// space. A word longer than that has a line of its own.
std::string wrapped(std::string_view text, size_t width, size_t indent);

}  // namespace moeflux
