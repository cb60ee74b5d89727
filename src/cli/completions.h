// Completions for shells and pages for man, made from the options of all commands.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/options.h"

namespace moeflux {

using CommandList = std::span<const CommandOptions* const>;

/// The completions of bash, zsh or fish.
Result<std::string> completion_script(std::string_view shell, CommandList commands);

/// In roff: the program's page, and one of a command.
std::string man_page(std::string_view summary, std::string_view version, CommandList commands);
std::string man_page(const CommandOptions& command, std::string_view version);

}  // namespace moeflux
