// Reads a command's arguments into its options, and answers those of other programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace moeflux {

/// The findings beside the options.
struct ParsedArguments {
  std::vector<std::string> notes;  // of options that are taken and do nothing, a line each
};

/// Gives the options what `arguments` say: "--name value", "--name=value", "-n value", "-nvalue",
/// "-abc" of flags, positional arguments, and nothing but those behind "--". Nothing is set yet.
/// Fails with kInvalidArgument, with what may have been meant.
Result<ParsedArguments> parse_arguments(CommandOptions& command,
                                        std::span<const std::string> arguments);

/// Checks which options are there, and sets the variables of those that are.
Status apply_options(const CommandOptions& command);

}  // namespace moeflux
