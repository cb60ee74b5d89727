// --chat-template-file, for the commands that turn messages into prompts.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "chat/model_template.h"
#include "cli/options.h"

namespace moeflux {

void add_template_option(CommandOptions& command, std::string& file);

/// The file's template; none where no file was named.
Result<std::optional<GivenTemplate>> given_template(const std::string& file);

}  // namespace moeflux
