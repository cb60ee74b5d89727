// --chat-template-file, for the commands that turn messages into prompts.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "chat/chat_format.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace moeflux {

void add_template_option(CommandOptions& command, std::string& file);

/// The file's template; none where no file was named.
Result<std::optional<GivenTemplate>> given_template(const std::string& file);

/// Warns of a template that compiles and cannot show a question: an unknown filter, or an exception
/// that it raises.
void check_question(const ChatFormat& format, const Log& log);

}  // namespace moeflux
