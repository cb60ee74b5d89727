// The output of `moeflux config`: the settings that hold, and where each comes from.
#pragma once

#include <string>

#include "cli/options.h"

namespace moeflux {

/// As a section of a configuration file, with comments: options that are set, and with `all` those
/// that are not. Nothing when there are none. Secrets are not shown.
std::string config_report(const CommandOptions& command, bool all);

}  // namespace moeflux
